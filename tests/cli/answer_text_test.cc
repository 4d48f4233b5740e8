// SPDX-License-Identifier: Apache-2.0
#include "cli/common/answer_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <sstream>

#include "inductorfs/config/json.h"
#include "inductorfs/mount/sharing.h"
#include "inductorfs/mount/status.h"
#include "support/learned_facts.h"

namespace inductorfs::cli {

using config::Json;
using config::to_line;

namespace {

using fingerprint::Facet;

constexpr const char* kStatus = R"({"version":"1.2.3","mountpoint":"/m","pid":77,
  "store":{"directory":"/s","blobs":3,"bytes":1536,"size_limit":21474836480,"evicted":1},
  "remote":{"configured":true,"address":"redis://h:6379/0","reachable":true,"last_error":"","version":"7.0.15"},
  "catalog":{"entries":40,"hidden":2,"queued":5,"synced":true,"oldest_queued_error":"timed out","queued_paths":["a"]},
  "file_system":{"nodes":9,"unsealed":1,"contested":2,"refused":["ab/x.so: no ELF\u001b[31m"],
    "foreign":3,"foreign_reasons":["TRITON_DEFAULT_FP_FUSION is 0, and this mount declares it unset"]},
  "counters":{"lookup.first_touch":12,"fetch.blobs":11,"fetch.bytes":2097152,"publish.published":4},
  "also":[{"name":"precompiled_headers","path":"/t/p","state":"bound"}],
  "warnings":["maxmemory-policy is allkeys-lru"],
  "private_families":[{"family":"triton","why":"gpu-arch is not known"}],
  "facts":{"from_file":false,"age_s":90,"probes":4,"changes":1,"last_change":["torch: version=2.9 -> version=2.15"]}})";

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Jobs, SaysNothingOfProcessesOfWhichNothingIsKnown) {
  const std::string hidden = jobs_text(R"({"jobs":[{"number":3,"job":"gone","user":0,"command":"","processes":0,
                                          "started":"10:00","ended":"10:01"}]})");
  EXPECT_TRUE(hidden.starts_with("job 3: gone, 10:00 to 10:01\n")) << hidden;
  const std::string seen =
      jobs_text(R"({"jobs":[{"number":4,"job":"process 7","user":5,"command":"python","processes":2,
                                        "started":"10:00","ended":""}]})");
  EXPECT_TRUE(seen.starts_with("job 4: process 7 (python, uid 5, 2 processes), since 10:00\n")) << seen;
  EXPECT_TRUE(
      has(jobs_text(R"({"jobs":[{"number":4,"job":"process 7","user":5,"command":"python","script":"/opt/a\n.py",
                                         "processes":2,"started":"10:00","ended":""}]})"),
          "(python /opt/a\\x0a.py, uid 5, 2 processes)"));
}

TEST(StatsText, HasEachUserWithHisPrograms) {
  const std::string text = stats_text(R"({"all":{"asked":8,"hit_percent":87.5},"users":[
      {"user":7,"asked":8,"hit_percent":87.5,"made":1,"saved_s":4.5,"programs":[
        {"program":"python a.py","asked":8,"hit_percent":87.5,"made":1,"saved_s":4.5},{"program":"","asked":0,"hit_percent":null}]},
      {"user":null,"asked":1,"hit_percent":0,"programs":[{"program":"","asked":1}]}]})");
  EXPECT_TRUE(has(text, "hit rate      87.5 % of 8 keys\n")) << text;
  EXPECT_TRUE(has(text, "    uid 7                                                  8   87.5 %       1     4.50 s\n"))
      << text;
  EXPECT_TRUE(has(text, "      python a.py                                          8   87.5 %       1     4.50 s\n"))
      << text;
  EXPECT_TRUE(has(text, "      other programs                                       0        -       0     0.00 s\n"))
      << text;
  EXPECT_TRUE(has(text, "    others, and who cannot be seen                         1    0.0 %       0     0.00 s\n"))
      << text;
}

TEST(PurgeText, SaysThatItBeganAnewAndNotThatNothingMatches) {
  const Json answer = {{"selected", 0},    {"looked_at", 0},         {"scopes", 18},
                       {"bytes", 0},       {"unknown", 0},           {"removed", 0},
                       {"dry_run", false}, {"paths", Json::array()}, {"nodes", Json::array()}};
  EXPECT_TRUE(has(purge_text(answer), "no entry matches")) << purge_text(answer);
  Json anew = answer;
  anew["began_anew"] = 2;
  EXPECT_TRUE(has(purge_text(anew), "so the purge began anew 2 times: the numbers hold for all tries"));
  EXPECT_FALSE(has(purge_text(anew), "no entry matches"));
}

TEST(StatusText, HasWhatAPersonAsksFor) {
  const std::string text = status_text(kStatus);

  EXPECT_TRUE(has(text, "/m (pid 77, version 1.2.3)")) << text;
  EXPECT_TRUE(has(text, "redis://h:6379/0, reachable, Redis 7.0.15")) << text;
  EXPECT_TRUE(has(text, "40 entries, 2 hidden here, 5 queued (oldest: timed out)")) << text;
  EXPECT_TRUE(has(text, "/s: 3 blobs, 1.5 KiB of 20.0 GiB, 1 evicted")) << text;
  EXPECT_TRUE(has(text, "files         9 known to the kernel, 1 not complete yet, 2 Triton kernels being written\n"))
      << text;
  EXPECT_TRUE(
      has(text, "12 files of the cluster opened for the first time, 11 blobs fetched (2.0 MiB), 4 groups published"))
      << text;
  EXPECT_TRUE(has(text, "/t/p shows precompiled_headers: bound")) << text;
  EXPECT_TRUE(has(text, "triton: gpu-arch is not known")) << text;
  EXPECT_TRUE(has(text, "warning       maxmemory-policy is allkeys-lru")) << text;
}

TEST(StatusText, SaysWhatBecameOfTheFacts) {
  const std::string text = status_text(kStatus);
  EXPECT_TRUE(has(text, "facts         learned 90 s ago, 1 changes in 4 probes\n")) << text;
  EXPECT_TRUE(has(text, "last change   torch: version=2.9 -> version=2.15\n")) << text;

  Json failed = Json::parse(kStatus);
  failed["facts"]["from_file"] = true;
  failed["facts"]["problem"] = "no fingerprint: /f";
  EXPECT_TRUE(has(status_text(to_line(failed)), "from a file, read 90 s ago")) << status_text(to_line(failed));
  EXPECT_TRUE(has(status_text(to_line(failed)), "the last probe failed: no fingerprint: /f"));
}

TEST(StatusText, AdvisesAboutForeignWriters) {
  const std::string text = status_text(kStatus);
  EXPECT_TRUE(has(text, "foreign       3 artefacts stay here")) << text;
  EXPECT_TRUE(has(text, "TRITON_DEFAULT_FP_FUSION is 0, and this mount declares it unset")) << text;
}

TEST(StatusText, ShowsNoControlCharacters) {
  const std::string text = status_text(kStatus);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_TRUE(has(text, "ab/x.so: no ELF\\x1b[31m")) << text;
}

TEST(StatusText, SaysWhetherTheRemoteAnswers) {
  Json status = Json::parse(kStatus);
  status["remote"]["reachable"] = false;
  status["remote"]["last_error"] = "connection refused";
  EXPECT_TRUE(has(status_text(to_line(status)), "NOT reachable: connection refused"));
  status["remote"]["configured"] = false;
  EXPECT_TRUE(has(status_text(to_line(status)), "remote        none: a local cache"));
}

TEST(StatusText, TakesWhatItGets) {
  EXPECT_EQ(status_text("no json"), "");
  EXPECT_FALSE(status_text("{}").empty());
  EXPECT_FALSE(status_text(R"({"store":7,"also":{},"warnings":[1,{}],"counters":[]})").empty());
}

TEST(ExplanationText, SaysWhyAPathIsNotVisible) {
  vfs::Explanation explanation;
  explanation.path = "fxgraph/ab/x";
  explanation.family = "fxgraph";
  explanation.where = "nowhere";
  explanation.why = "no entry of this scope has it";
  explanation.scope = "0123";

  const std::string text = explanation_text(mount::explanation_json(explanation, Json::object()));

  EXPECT_TRUE(has(text, "family        fxgraph\n")) << text;
  EXPECT_TRUE(has(text, "visible       no: no entry of this scope has it\n")) << text;
  EXPECT_FALSE(has(text, "digest"));
}

TEST(ExplanationText, ShowsFacetsAndTheNearestScope) {
  vfs::Explanation explanation;
  explanation.scope = "0123";
  explanation.scope_text = "inductorfs-scope-v1\nfacet=gpu\ndevice=H100\nfacet=torch\nversion=2.15\n";
  const Json nearest = {{"scope", "4567"},
                        {"others", 3U},
                        {"differences", {{{"facet", "gpu"}, {"ours", "device=H100"}, {"theirs", "device=H200"}}}}};

  const std::string json =
      mount::explanation_json(explanation, {{"text", "other nodes have it"}, {"nearest", nearest}});

  EXPECT_EQ(Json::parse(json)["facets"]["torch"], "version=2.15");
  const std::string text = explanation_text(json);
  EXPECT_EQ(text.substr(0, text.find('\n')), "verdict       other nodes have it");
  EXPECT_TRUE(has(text, "facets        gpu\n                  device=H100\n              torch\n")) << text;
  EXPECT_TRUE(has(text, "nearest       4567, of 3 other scopes")) << text;
  EXPECT_TRUE(has(text, "differs in gpu\n")) << text;
  EXPECT_TRUE(has(text, "- here:  device=H100\n")) << text;
  EXPECT_TRUE(has(text, "+ there: device=H200\n")) << text;
  const Json none = {{"why_none", "no other scope of these facets is in the cluster"}};
  EXPECT_TRUE(
      has(explanation_text(mount::explanation_json(explanation, {{"nearest", none}})), "nearest       no other scope"));
}

config::Settings with_remote() {
  config::Settings settings;
  settings.remote = "redis://cache.example";
  return settings;
}

host::Scopes all_known() { return host::Scopes(testing::facts::all_known({})); }

TEST(SyncText, CountsWhatWentAndWhatStayed) {
  Counters counters;
  vfs::FileSystemStatus files;
  EXPECT_EQ(sync_text(mount::sync_report(with_remote(), counters, files, all_known())), "published 0 groups\n");
  EXPECT_EQ(mount::sync_report(with_remote(), counters, files, all_known())["nothing_shared"], false)
      << "nothing was written";
  files.foreign = 2;
  files.foreign_reasons = {"the writer has no torch loaded"};
  EXPECT_EQ(mount::sync_report(with_remote(), counters, files, all_known())["nothing_shared"], false)
      << "found at the start";
  counters.get("seal.foreign").add(2);
  const Json kept = mount::sync_report(with_remote(), counters, files, all_known());
  EXPECT_EQ(kept["nothing_shared"], true);
  EXPECT_EQ(sync_text(kept), "published 0 groups; kept 2 artefacts on this host: the writer has no torch loaded\n");
  counters.get("publish.published").add();
  files.refused = {"a/b: needs GLIBC_2.41", "a/c: too large", "a/d: no form"};
  counters.get("seal.refused").add(3);
  const Json some = mount::sync_report(with_remote(), counters, files, all_known());
  EXPECT_EQ(some["nothing_shared"], false);
  EXPECT_EQ(sync_text(some),
            "published 1 group; kept 5 artefacts on this host: the writer has no torch loaded; a/b: "
            "needs GLIBC_2.41; a/c: too large; and more: see inductorfs status\n");
}

TEST(NothingSharedText, NamesTheMountAndTheFirstReason) {
  const Json one = {{"why", {"facet torch: not known"}}};
  EXPECT_EQ(nothing_shared_text(one, "/m"), "nothing that was written is shared: /m: facet torch: not known");
  const Json two = {{"why", {"facet torch: not known", "a/b: too large"}}};
  EXPECT_EQ(nothing_shared_text(two, "/m"),
            "nothing that was written is shared: /m: facet torch: not known; run inductorfs status for all reasons");
  EXPECT_EQ(nothing_shared_text(Json::object(), "/m"),
            "nothing that was written is shared: /m: the daemon tells no reason")
      << "another version's answer";
}

TEST(SyncText, NamesWhatIsStillBeingWritten) {
  Counters counters;
  vfs::FileSystemStatus files;
  files.still_written = {"ab/x.best_config"};
  EXPECT_EQ(sync_text(mount::sync_report(with_remote(), counters, files, all_known())),
            "published 0 groups; kept 1 artefact on this host: ab/x.best_config: still being written\n");
}

TEST(SyncText, NamesTheFactThatIsNotKnown) {
  Counters counters;
  counters.get("seal.unknown").add(2);
  const host::Scopes scopes(testing::facts::all_known_but(Facet::kTorch, {false, {}, {}, "no such program", {}}));
  const Json report = mount::sync_report(with_remote(), counters, {}, scopes);
  EXPECT_EQ(report["nothing_shared"], true);
  EXPECT_TRUE(sync_text(report).starts_with("published 0 groups; kept 2 artefacts on this host: facet torch: "))
      << sync_text(report);
}

TEST(SyncText, IsEmptyForALocalCacheAndForAnotherVersion) {
  Counters counters;
  counters.get("seal.foreign").add();
  EXPECT_EQ(sync_text(mount::sync_report(config::Settings{}, counters, {}, all_known())),
            "all that was written is complete; nothing is shared, because the mount has no --remote\n");
  EXPECT_EQ(sync_text(Json::object()), "") << "an earlier daemon";
}

TEST(MountsText, HasALineForWhatDoesNotAnswer) {
  const Json mounts =
      Json::parse(R"([{"mountpoint":"/a","remote":{"configured":false},"catalog":{"entries":3,"queued":1},
      "store":{"bytes":1024,"size_limit":2048},"file_system":{"foreign":2},"warnings":["w"]},
      {"mountpoint":"/b","error":"its daemon does not answer"}])");
  EXPECT_EQ(mounts_text(mounts),
            "/a\n    remote none: a local cache\n"
            "    3 entries, 1 queued; store 1.0 KiB of 2.0 KiB; 2 artefacts stay here, 1 warnings\n"
            "/b\n    its daemon does not answer\n");
  EXPECT_TRUE(mounts_text(Json::array()).starts_with("no inductorfs mount"));
  EXPECT_TRUE(mounts_text(Json::object()).starts_with("no inductorfs mount"));
}

TEST(VariablesText, IsQuotedForWhoReadsIt) {
  const std::string root = "/m/a $b'c%\"d";
  EXPECT_NE(variables_text(root, "sh").find("export TORCHINDUCTOR_CACHE_DIR='/m/a $b'\\''c%\"d'\n"), std::string::npos)
      << variables_text(root, "sh");
  EXPECT_NE(variables_text("/m/alice", "sh").find("export TRITON_CACHE_DIR=/m/alice/triton_cache\n"),
            std::string::npos);
  EXPECT_TRUE(variables_text("/m/alice", "docker").starts_with("--env TORCHINDUCTOR_CACHE_DIR=/m/alice\n"));
  EXPECT_NE(variables_text(root, "systemd").find("Environment=\"TORCHINDUCTOR_CACHE_DIR=/m/a $b'c%%\\\"d\"\n"),
            std::string::npos)
      << variables_text(root, "systemd");
  EXPECT_NE(variables_text(root, "k8s").find("- name: TORCHINDUCTOR_CACHE_DIR\n  value: \"/m/a $b'c%\\\"d\"\n"),
            std::string::npos);
  EXPECT_EQ(Json::parse(variables_text(root, "json"))["variables"]["TORCHINDUCTOR_CACHE_DIR"], root);
  EXPECT_NE(variables_text("/m/$HOME", "systemd").find("ExecStartPre=mkdir -p \"/m/$$HOME\" "), std::string::npos)
      << "systemd replaces variables in a command line";
}

TEST(VariablesText, NameAUserWhomTheDatabaseDoesNotKnow) {
  EXPECT_NE(variables_text("/m/7", "sh", "7").find("export USER=7\n"), std::string::npos);
  EXPECT_TRUE(variables_text("/m/7", "docker", "7").starts_with("--env USER=7\n"));
  EXPECT_NE(variables_text("/m/7", "systemd", "7").find("Environment=\"USER=7\"\n"), std::string::npos);
  const Json json = Json::parse(variables_text("/m/7", "json", "7"));
  EXPECT_EQ(json["variables"]["USER"], "7");
  EXPECT_NE(json["directories"].front(), "7");
  EXPECT_EQ(variables_text("/m/alice", "sh").find("USER="), std::string::npos) << "others have one";
}

TEST(VariablesText, AreTakenAwayByOneCommand) {
  const Json json = Json::parse(variables_text("/m", "json"));
  const std::string text = unset_text();
  EXPECT_EQ(std::ranges::count(text, ' '), json["variables"].size());
  for (const auto& [name, value] : json["variables"].items()) {
    EXPECT_NE((" " + text.substr(6, text.size() - 7) + " ").find(" " + name + " "), std::string::npos) << name;
  }
}

TEST(VariablesText, TakesAnyPath) {
  for (const char* format : {"docker", "systemd", "k8s", "json"})
    EXPECT_FALSE(variables_text("/m\xff", format).empty());
  EXPECT_NE(variables_text("/m\xff", "sh").find("='/m\xff/vllm'\n"), std::string::npos);
}

TEST(VariablesText, NamesEachCacheOnceInEachFormat) {
  const Json all = Json::parse(variables_text("/m", "json"));
  for (const char* name :
       {"TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "VLLM_CACHE_ROOT", "SGLANG_CACHE_DIR", "SGLANG_JIT_CACHE_DIR",
        "DG_JIT_CACHE_DIR", "TILELANG_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE"}) {
    EXPECT_TRUE(all["variables"].contains(name)) << name;
    EXPECT_FALSE(all["not_set"].contains(name)) << name;
    for (const char* format : {"sh", "docker", "systemd", "k8s"}) {
      EXPECT_NE(variables_text("/m", format).find(name), std::string::npos) << name << " " << format;
    }
  }
  for (const char* name : {"TVM_FFI_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "CUDA_CACHE_PATH", "FLASHINFER_CUBIN_DIR"}) {
    EXPECT_FALSE(all["not_set"][name].get<std::string>().empty()) << name;
    EXPECT_EQ(variables_text("/m", "docker").find(name), std::string::npos) << name;
  }
  for (const auto& [name, value] : all["variables"].items()) {
    EXPECT_NE(std::ranges::find(all["directories"], value), all["directories"].end()) << name;
    EXPECT_FALSE(all["why"][name].get<std::string>().empty()) << name;
  }
}

TEST(MetricsText, HasOneFamilyForAllMounts) {
  const Json mounts =
      Json::parse(R"([{"mountpoint":"/a \\ \"b\"","counters":{"fetch.bytes":7,"fuse.nanoseconds":1500000000,
      "keys.asked":9,"keys.missed.late":2,"keys.missed.of \"x\"":1,"keys.saved_ms":4711},
      "remote":{"reachable":true},"warnings":["w","x"],"unknown_programs":[{"processes":2},{"processes":3}]},
      {"mountpoint":"/c","error":"it does not answer"},{"mountpoint":"/d","counters":{"fetch.bytes":"many"}}])");
  const std::string text = metrics_text(mounts);
  EXPECT_TRUE(
      text.starts_with("# HELP inductorfs_up 1 if the daemon of the mount answers; 0 also where nothing is mounted and "
                       "a unit is enabled or has a "
                       "configuration.\n# TYPE inductorfs_up gauge\n"
                       "inductorfs_up{mountpoint=\"/a \\\\ \\\"b\\\"\"} 1\n"
                       "inductorfs_up{mountpoint=\"/c\"} 0\ninductorfs_up{mountpoint=\"/d\"} 1\n"))
      << text;
  const auto has = [&text](const std::string& part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(has("# TYPE inductorfs_fetched_bytes_total counter\ninductorfs_fetched_bytes_total{")) << text;
  EXPECT_TRUE(has("inductorfs_fuse_seconds_total{mountpoint=\"/a \\\\ \\\"b\\\"\"} 1.500000\n"));
  EXPECT_TRUE(has("inductorfs_saved_seconds_total{mountpoint=\"/a \\\\ \\\"b\\\"\"} 4.711\n"));
  EXPECT_TRUE(has("_missed_by_reason_total{mountpoint=\"/a \\\\ \\\"b\\\"\",reason=\"late\"} 2\n"));
  EXPECT_TRUE(has(",reason=\"of \\\"x\\\"\"} 1\n")) << "a reason of a later daemon";
  EXPECT_TRUE(has("inductorfs_remote_reachable{mountpoint=\"/a \\\\ \\\"b\\\"\"} 1\n"));
  EXPECT_TRUE(has("} 2\n# HELP inductorfs_unknown_programs"));
  EXPECT_TRUE(text.ends_with("} 5\n"));
  EXPECT_FALSE(has("store_bytes")) << "nobody tells it";
}

TEST(MetricsText, HasHistograms) {
  const Json mounts = Json::parse(R"([{"mountpoint":"/m","histograms":{
      "lookup.wait":{"bounds":[10000,250000000,1000000000],"cumulative":[1,3,3,4],"sum":2500000000},
      "publish":{"bounds":[1],"cumulative":[1],"sum":1},"fuse.request":{"bounds":[1,"x"],"cumulative":[1,2,3]}}}])");
  const std::string text = metrics_text(mounts);
  EXPECT_NE(text.find("# TYPE inductorfs_lookup_wait_seconds histogram\n"
                      "inductorfs_lookup_wait_seconds_bucket{mountpoint=\"/m\",le=\"1e-05\"} 1\n"
                      "inductorfs_lookup_wait_seconds_bucket{mountpoint=\"/m\",le=\"0.25\"} 3\n"
                      "inductorfs_lookup_wait_seconds_bucket{mountpoint=\"/m\",le=\"1.0\"} 3\n"
                      "inductorfs_lookup_wait_seconds_bucket{mountpoint=\"/m\",le=\"+Inf\"} 4\n"
                      "inductorfs_lookup_wait_seconds_count{mountpoint=\"/m\"} 4\n"
                      "inductorfs_lookup_wait_seconds_sum{mountpoint=\"/m\"} 2.500000000\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("publish_seconds"), std::string::npos) << "it lacks a bucket";
  EXPECT_EQ(text.find("fuse_request_seconds"), std::string::npos) << "a bound is no number";
}

TEST(MetricsText, HasTheZeroBeforeTheFirstEvent) {
  const auto text_of = [](const std::string& version) {
    return metrics_text(
        Json{{{"mountpoint", "/m"}, {"version", version}, {"counters", Json::object()}, {"remote", Json::object()}}});
  };
  const std::string sample = "inductorfs_fetches_corrupt_total{mountpoint=\"/m\"} 0\n";
  EXPECT_NE(text_of(INDUCTORFS_VERSION).find(sample), std::string::npos);
  EXPECT_EQ(text_of(INDUCTORFS_VERSION).find("remote_reachable"), std::string::npos) << "a gauge has no such value";
  EXPECT_EQ(text_of(INDUCTORFS_VERSION).find("evicted_keys"), std::string::npos) << "no server has told";
  EXPECT_EQ(text_of("0.0.1").find("corrupt"), std::string::npos) << "whether that daemon counts it is not known";
}

TEST(NodesText, SumsWhatIsToldAndTellsWhoIsBehind) {
  const auto answer = config::from_text(R"({"nodes":[
    {"id":"a","host":"one","mountpoint":"/m","version":"2","started":1000,"scope_count":50,"queued":4,"foreign":0,"age_s":3,
     "counters":{"fetch.blobs":7,"keys.local":1,"keys.cluster":8,"keys.missed":1,"keys.made":2,"keys.saved_ms":90000}},
    {"id":"b","host":"two","mountpoint":"/m","version":"2","scope_count":1,"queued":10,"age_s":69,"is_stale":true,
     "counters":{"keys.local":0,"keys.cluster":0,"keys.missed":0,"keys.made":0,"keys.saved_ms":0}},
    {"id":"c","host":"old","mountpoint":"/m","version":"1","age_s":1,"frozen":true,"counters":{"fetch.blobs":5}}],
   "missing":[{"host":"three","mountpoint":"/m","age_s":4000,"is_gone":true},{"host":"four","mountpoint":"/m","age_s":100}]})");
  const std::string text = nodes_text(answer, 5000);
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    static const std::regex gap("  +");
    rows.emplace_back(std::sregex_token_iterator(line.begin(), line.end(), gap, -1), std::sregex_token_iterator());
  }
  using Row = std::vector<std::string>;
  const auto from = [&](size_t row) { return Row(rows[row].begin() + 4, rows[row].end()); };
  EXPECT_EQ(from(1), (Row{"50", "4", "0", "7", "10", "90%", "2", "90 s", "3 s", "serving"})) << text;
  EXPECT_EQ(from(2), (Row{"1", "10", "-", "-", "0", "-", "0", "0 s", "69 s", "stale"})) << text;
  EXPECT_EQ(from(3), (Row{"-", "-", "-", "5", "-", "-", "-", "-", "1 s", "frozen"})) << "an earlier release tells less";
  EXPECT_NE(text.find("gone since 1970-01-01"), std::string::npos) << text;
  EXPECT_EQ(rows[5].back(), "stale");
  EXPECT_EQ(text.find(" mounts are called "), std::string::npos) << text;
  const Json first = answer.at("nodes").front();
  EXPECT_NE(nodes_text({{"nodes", Json::array({first, first})}}, 5000).find("\n2 mounts are called "),
            std::string::npos);
  const Json one{{"nodes", Json::array({answer.at("nodes").front()})}};
  EXPECT_NE(nodes_text(one, 5000).find("\n1 mount; mounts that"), std::string::npos) << nodes_text(one, 5000);
  EXPECT_NE(text.find("\ntotal: 10 asked, 90% of them found, 2 made, 90 s saved\n3 mounts; "), std::string::npos)
      << text;
}

TEST(ServerText, SaysWhatItWasTold) {
  EXPECT_EQ(server_text(Json::object()), "");
  EXPECT_EQ(server_text({{"version", "7.0.15"}, {"memory_limit", 0}}), ", Redis 7.0.15") << "of an earlier daemon";
  Json full{{"version", "7.0.15"}, {"memory_used", 1024}, {"memory_limit", 2048}, {"eviction_policy", "volatile-ttl"}};
  EXPECT_EQ(server_text(full), ", Redis 7.0.15, 1.0 KiB of 2.0 KiB volatile-ttl");
  full["evicted_keys"] = 3;
  EXPECT_TRUE(server_text(full).ends_with(", 3 keys evicted"));
}

TEST(SyncText, DoesNotTakeWhatIsTooLargeForShared) {
  Counters counters;
  counters.get("publish.kept_local").add(2);
  const Json report = mount::sync_report(with_remote(), counters, {}, all_known());
  EXPECT_EQ(report["nothing_shared"], true);
  EXPECT_TRUE(
      sync_text(report).starts_with("published 0 groups; kept 2 artefacts on this host: some artefacts are larger"))
      << sync_text(report);
}

}  // namespace
}  // namespace inductorfs::cli
