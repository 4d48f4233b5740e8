// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "cli/doctor/doctor_findings.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/config/json.h"
#include "inductorfs/remote/server_examination.h"
#include "support/lacks.h"
#include "support/temporary_directory.h"

namespace inductorfs::cli {
namespace {

using config::Json;
using inductorfs::testing::TemporaryDirectory;
using Kind = Diagnosis::Kind;

/// Who asks.
constexpr uid_t kUser = 1000;
/// What runs if it is pasted without quotes.
const std::string kEvil = "x; touch PWNED #";

/// The answer of a mount with which all is well.
Json healthy() {
  return Json::parse(R"({"mountpoint":"/m","version":")" INDUCTORFS_VERSION R"(","store":{"size_limit":21474836480},
      "remote":{"configured":true,"reachable":true,"address":"redis://h","version":"7.0"},"catalog":{"queued":0,
      "oldest_queued_error":""},"file_system":{"foreign":0,"foreign_reasons":[],"first_roots":[{"path":"a",
      "shared_with":"everybody"}]},"unknown_programs":[],"private_families":[],"warnings":[]})");
}

/// Whether there is one finding of this kind that says this and has this remedy, and none that is worse.
bool finds(const std::vector<Diagnosis>& findings, Kind kind, const std::string& what, const std::string& remedy) {
  return std::ranges::any_of(findings, [&](const Diagnosis& one) {
    return one.kind == kind && one.what.find(what) != std::string::npos && one.remedy.find(remedy) != std::string::npos;
  });
}

TEST(FindingsOfMount, AreGoodWhenAllIsWell) {
  for (const Diagnosis& one : findings_of_mount(healthy(), kUser)) EXPECT_EQ(one.kind, Kind::kGood) << one.what;
}

TEST(FindingsOfMount, NameEachFaultAndItsRemedy) {
  struct Fault {
    const char* patch;
    Kind kind;
    const char* what;
    const char* remedy;
  };
  const Fault faults[] = {
      {R"({"error":"the daemon has ended: run inductorfs unmount --lazy"})", Kind::kBad, "/m has no daemon",
       "unmount --lazy"},
      {R"({"remote":{"configured":false}})", Kind::kWarning, "no remote", "--remote redis://HOST"},
      {R"({"remote":{"reachable":false,"last_error":"refused"}})", Kind::kBad, "redis://h is not reachable: refused",
       "host, port, password"},
      {R"({"store":{"size_limit":67108864}})", Kind::kWarning, "64.0 MiB at most", "--store-limit"},
      {R"({"catalog":{"queued":3,"oldest_queued_error":"OOM command not allowed"}})", Kind::kWarning,
       "3 groups wait to be published; the oldest: OOM", "the server says"},
      {R"({"version":"0.0.1"})", Kind::kWarning, "served by version 0.0.1", "inductorfs upgrade /m"},
      {R"({"file_system":{"foreign":7,"foreign_reasons":["facet torch: another"]}})", Kind::kWarning,
       "7 artefacts stay on this host: facet torch: another", "inductorfs status /m"},
      {R"({"unknown_programs":[{"user":5,"processes":2,"why":"its packages hang"}]})", Kind::kWarning,
       "2 programs of uid 5 share nothing: its packages hang", "start them again"},
      {R"({"private_families":[{"family":"fxgraph","why":"facet gpu: not known"}]})", Kind::kWarning,
       "fxgraph is not shared: facet gpu", "fingerprint --families"},
      {R"({"file_system":{"first_roots":[{"path":"bob","shared_with":"nobody: chmod o-w it"}]}})", Kind::kWarning,
       "/m/bob is shared with nobody", "chmod o-w it"},
      {R"({"file_system":{"first_roots":[{"path":"bob","owner":1001,"shared_with":"nobody: everybody may write"}]}})",
       Kind::kBad, "/m/bob belongs to uid 1001", "ask root to remove it, or name another directory"},
      {R"({"warnings":["the supervisor is gone: unmount it and mount again"]})", Kind::kWarning,
       "/m: the supervisor is gone: unmount it and mount again", "inductorfs status /m"},
      {R"({"warnings":["nothing that torch makes will be shared: it has no torch; name the job's interpreter"]})",
       Kind::kWarning, "/m: nothing that torch makes will be shared", "name the job's interpreter"},
      {R"({"remote":{"refuses_writes":"OOM"},"warnings":["the server has refused what this mount publishes: OOM"]})",
       Kind::kBad, "the server has refused", "mend what the server says"},
  };
  for (const Fault& fault : faults) {
    Json status = healthy();
    status.merge_patch(Json::parse(fault.patch));
    const auto findings = findings_of_mount(status, kUser);
    EXPECT_TRUE(finds(findings, fault.kind, fault.what, fault.remedy)) << fault.patch << "\n"
                                                                       << findings_text(findings);
    EXPECT_TRUE(std::ranges::all_of(findings, [](const Diagnosis& one) {
      return one.kind == Kind::kGood || !one.remedy.empty();
    })) << findings_text(findings);
  }
}

TEST(FindingsOfMount, AreNoWorseForADirectoryOfOnesOwn) {
  Json status = healthy();
  Json root{{"path", "bob"}, {"shared_with", "nobody: everybody may write to it: chmod o-w it"}};
  for (const auto& [owner, user] : {std::pair<uid_t, uid_t>{kUser, kUser}, {0, kUser}, {kUser, 0}}) {
    root["owner"] = owner;
    status["file_system"]["first_roots"] = Json::array({root});
    EXPECT_TRUE(finds(findings_of_mount(status, user), Kind::kWarning, "is shared with nobody", "chmod o-w it"))
        << owner << " " << user;
  }
}

TEST(FindingsOfMount, QuoteWhatAUserPastes) {
  Json status = healthy();
  status.merge_patch(
      Json::parse(R"({"version":"0.0.1","file_system":{"foreign":7},"cluster":{"frozen":true,"why":"x"}})"));
  status["mountpoint"] = "/m/" + kEvil;
  const auto findings = findings_of_mount(status, kUser);
  for (const std::string command : {"inductorfs upgrade ", "inductorfs status ", "inductorfs freeze --lift "}) {
    const std::string wanted = command + "'/m/" + kEvil + "'";
    EXPECT_TRUE(std::ranges::any_of(findings,
                                    [&](const Diagnosis& one) { return one.remedy.find(wanted) != std::string::npos; }))
        << wanted << findings_text(findings);
  }
}

TEST(FindingsOfMount, TakeAnyAnswer) {
  for (const char* text : {"[]", "3", "{}", R"({"warnings":3,"unknown_programs":{"a":1},"file_system":[1]})"}) {
    (void)findings_of_mount(Json::parse(text), kUser);
  }
}

std::vector<Diagnosis> with_variables(const std::map<std::string, std::string>& variables) {
  return findings_of_variables(
      [&](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional(found->second);
      },
      [](const std::string& path) { return path.starts_with("/m/") ? std::string("/m") : std::string(); }, "/m");
}

TEST(FindingsOfVariables, NameWhatLeadsElsewhere) {
  EXPECT_TRUE(finds(with_variables({}), Kind::kNote, "is not set", "inductorfs env /m"));
  EXPECT_TRUE(finds(with_variables({{"TORCHINDUCTOR_CACHE_DIR", "/m/alice"}}), Kind::kGood, "lies in /m", ""));
  EXPECT_TRUE(finds(with_variables({{"TORCHINDUCTOR_CACHE_DIR", "/tmp/x"}}), Kind::kBad, "lies in no mount", "env /m"));
  const std::map<std::string, std::string> good{{"TORCHINDUCTOR_CACHE_DIR", "/m/alice"}, {"TRITON_CACHE_DIR", "/m/t"}};
  EXPECT_EQ(with_variables(good).size(), 1U);
  for (const auto& [name, value, remedy] : {std::tuple{"TRITON_CACHE_DIR", "/home/alice/.triton", "unset it"},
                                            std::tuple{"TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1", "unset it"},
                                            std::tuple{"TORCHINDUCTOR_FX_GRAPH_CACHE", "0", "unset it"},
                                            std::tuple{"TRITON_ALWAYS_COMPILE", "1", "unset it"}}) {
    auto bad = good;
    bad[name] = value;
    EXPECT_TRUE(finds(with_variables(bad), Kind::kBad, name, remedy)) << name;
  }
}

TEST(FindingsOfVariables, NameAManagerThatPutsTritonsKernelsElsewhere) {
  EXPECT_TRUE(finds(with_variables({{"TRITON_CACHE_MANAGER", "vllm.triton_utils:Manager"}}), Kind::kWarning,
                    "TRITON_CACHE_MANAGER=vllm.triton_utils:Manager", "unset it"));
  EXPECT_FALSE(
      finds(with_variables({{"TRITON_CACHE_MANAGER", ""}}), Kind::kWarning, "TRITON_CACHE_MANAGER", "unset it"));
}

TEST(FindingsOfVariables, QuoteWhatAUserPastes) {
  const std::string mount = "/m/" + kEvil;
  const auto none = [](const char*) { return std::optional<std::string>(); };
  const auto outside = [](const std::string&) { return std::string(); };
  const auto found = findings_of_variables(none, outside, mount);
  EXPECT_TRUE(finds(found, Kind::kNote, "is not set", "(inductorfs env '" + mount + "')")) << findings_text(found);
  const auto headers = finding_of_headers(outside, "/t/" + kEvil);
  ASSERT_TRUE(headers);
  EXPECT_NE(headers->remedy.find("--also 'precompiled_headers=/t/" + kEvil), std::string::npos) << headers->remedy;
}

TEST(FindingOfDevice, TellsWhatIsWrongWithIt) {
  const TemporaryDirectory temporary;
  EXPECT_EQ(finding_of_device(temporary / "fuse").remedy.find("modprobe fuse, or pass the device"), 0U);
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, temporary / "fuse", ""));
  EXPECT_NE(finding_of_device(temporary / "fuse").what.find("another file than the device"), std::string::npos);
  EXPECT_EQ(finding_of_device("/dev/null").kind, Kind::kBad);
}

TEST(FindingOfStore, KnowsNetworkDisksByTheirType) {
  EXPECT_EQ(finding_of_store("/s", "ext4").kind, Kind::kGood);
  for (const char* type : {"nfs4", "nfs", "cifs", "lustre", "fuse.sshfs", "gpfs", "beegfs", "wekafs", "glusterfs",
                           "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "virtiofs", "fuse.inductorfs"}) {
    const Diagnosis found = finding_of_store("/s", type);
    EXPECT_EQ(found.kind, Kind::kBad) << type;
    EXPECT_NE(found.what.find(type), std::string::npos);
    EXPECT_NE(found.remedy.find("--store"), std::string::npos);
  }
}

TEST(FindingOfStore, WarnsOfMemory) {
  const Diagnosis found = finding_of_store("/s", "tmpfs");
  EXPECT_EQ(found.kind, Kind::kWarning);
  EXPECT_NE(found.what.find("lost at a reboot"), std::string::npos);
  EXPECT_NE(found.remedy.find("--store"), std::string::npos);
}

TEST(FindingOfLimit, WarnsOfOneThatAJobFills) {
  EXPECT_FALSE(finding_of_limit("it", 20ULL << 30));
  EXPECT_FALSE(finding_of_limit("it", 0)) << "not known";
  EXPECT_EQ(finding_of_limit("it", 1)->what.find("it holds 1 B at most"), 0U) << finding_of_limit("it", 1)->what;
}

TEST(FindingsOfServer, CallOneBadThatIsFullAndCannotEvict) {
  remote::ServerExamination server;
  server.address = "redis://h";
  server.info = {{"redis_version", "7.0"},
                 {"maxmemory", "1000"},
                 {"maxmemory_policy", "volatile-ttl"},
                 {"used_memory", "1300"},
                 {"mem_not_counted_for_evict", "200"}};
  auto found = findings_of_server(server);
  EXPECT_TRUE(finds(found, Kind::kBad, "uses 130 % of its maxmemory", "CONFIG SET maxmemory 16gb"));
  EXPECT_FALSE(finds(found, Kind::kBad, "uses 130 %", "volatile-ttl")) << "it is so already";
  server.info["maxmemory_policy"] = "noeviction";
  EXPECT_TRUE(finds(findings_of_server(server), Kind::kBad, "refuses every write", "maxmemory-policy volatile-ttl"));
  server.info["used_memory"] = "1200";
  EXPECT_TRUE(finds(findings_of_server(server), Kind::kWarning, "uses 120 %", "raise maxmemory"));
}

TEST(FindingOfHelper, WantsASetUserIdProgramOfRoot) {
  const TemporaryDirectory temporary;
  const std::string program = temporary / "fusermount3";
  const std::string search = "/nowhere:" + temporary.path();
  EXPECT_EQ(finding_of_helper(search).remedy, "apt install fuse3");
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, program, ""));
  EXPECT_EQ(finding_of_helper(search).remedy, "install fuse3 again");
  if (::geteuid() != 0) INDUCTORFS_LACKS("root, whose program it has to be");
  ASSERT_EQ(::chmod(program.c_str(), 04755), 0);
  EXPECT_EQ(finding_of_helper(search).kind, Kind::kGood);
}

TEST(FindingOfKernel, WantsOneThatIsNewEnough) {
  for (const char* good : {"5.4.0", "5.15.0-91-generic", "6.1.0+", "10.0"}) {
    EXPECT_EQ(finding_of_kernel(good).kind, Kind::kGood) << good;
  }
  for (const char* bad : {"4.19.0", "5.3.18-default", "3.10", "", "x"}) {
    EXPECT_EQ(finding_of_kernel(bad).kind, Kind::kBad) << bad;
  }
}

TEST(FindingOfAllowOther, ReadsTheFileAsFusermountDoes) {
  const TemporaryDirectory temporary;
  const std::string file = temporary / "fuse.conf";
  EXPECT_FALSE(finding_of_allow_other(false, 1000, file));
  EXPECT_FALSE(finding_of_allow_other(true, 0, file));
  EXPECT_EQ(finding_of_allow_other(true, 1000, file)->kind, Kind::kBad);
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, file, "# a comment\n#user_allow_other\n"));
  EXPECT_EQ(finding_of_allow_other(true, 1000, file)->kind, Kind::kBad);
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, file, "mount_max = 9\nuser_allow_other\n"));
  EXPECT_EQ(finding_of_allow_other(true, 1000, file)->kind, Kind::kGood);
}

TEST(FindingsOfCaches, StopAtTheDeadlineAndFollowNoLink) {
  const TemporaryDirectory temporary;
  ASSERT_TRUE(make_directories(temporary / ".cache/vllm/a"));
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, temporary / ".cache/vllm/a/b", std::string(2 << 20, 'x')));
  std::filesystem::create_symlink("/usr", temporary / ".cache/vllm/a/link");
  std::filesystem::create_symlink(temporary / ".cache/vllm", temporary / ".deep_gemm");
  const auto none = [](const char*) { return std::optional<std::string>(); };
  const auto outside = [](const std::string&) { return std::string(); };
  const auto found =
      findings_of_caches(none, outside, temporary.path(), temporary / "none", Deadline::after(Milliseconds(60'000)));
  ASSERT_EQ(found.size(), 1U) << findings_text(found);
  EXPECT_TRUE(found.front().what.ends_with("/.cache/vllm has 2.0 MiB")) << found.front().what;
  const auto inside = [](const std::string&) { return std::string("/m"); };
  EXPECT_TRUE(findings_of_caches(none, inside, temporary.path(), "/t", Deadline::after(Milliseconds(60'000))).empty());
  EXPECT_TRUE(findings_of_caches(none, outside, temporary.path(), "/t", Deadline::after(Milliseconds(0))).empty());
}

std::vector<Diagnosis> engine_findings(const TemporaryDirectory& home,
                                       const std::map<std::string, std::string>& variables) {
  return findings_of_engines(
      [&](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional(found->second);
      },
      [&](const std::string& path) { return path.starts_with(home / "m/") ? home / "m" : std::string(); }, home / "m",
      home.path(), Deadline::after(Milliseconds(60'000)));
}

TEST(FindingsOfEngines, NameVariablesThatLeadIntoNoMount) {
  const TemporaryDirectory home;
  ASSERT_TRUE(make_directories(home / "m/vllm"));
  EXPECT_TRUE(engine_findings(home, {}).empty());
  EXPECT_TRUE(
      engine_findings(home, {{"VLLM_CACHE_ROOT", home / "m/vllm"}, {"DG_JIT_CACHE_DIR", home / "m/not/made"}}).empty());
  for (const char* name : {"VLLM_CACHE_ROOT", "SGLANG_CACHE_DIR", "SGLANG_JIT_CACHE_DIR", "DG_JIT_CACHE_DIR",
                           "TILELANG_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE"}) {
    EXPECT_TRUE(finds(engine_findings(home, {{name, home / "elsewhere"}}), Kind::kBad, "lies in no mount",
                      "export " + std::string(name) + "=" + (home / "m/")))
        << name;
  }
}

TEST(FindingsOfEngines, NameWhatVllmWouldEndOf) {
  const TemporaryDirectory home;
  const std::string root = home / "m/vllm";
  const std::string tag = root + "/torch_compile_cache/0123456789/rank_0_0/backbone";
  const std::string model = root + "/torch_compile_cache/torch_aot_compile/" + std::string(64, 'a') + "/rank_0_0";
  const std::string name = "artifact_compile_range_1_128_subgraph_0";
  const std::string whole = "{((1, 128), 0, 'inductor'): {'graph_handle': ('" + name + "', '/x/" + name + "')}}\n";
  ASSERT_TRUE(make_directories(tag));
  ASSERT_TRUE(make_directories(model));
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, tag + "/" + name, "bytes"));
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, model + "/model", "bytes"));
  const auto found = [&](const std::string& index) {
    EXPECT_TRUE(write_file_atomically(AT_FDCWD, tag + "/vllm_compile_cache.py", index));
    return engine_findings(home, {{"VLLM_CACHE_ROOT", root}});
  };

  EXPECT_TRUE(found(whole).empty());
  EXPECT_TRUE(finds(found(""), Kind::kWarning, "is empty: an engine is writing it", "rm -r " + tag));
  EXPECT_TRUE(finds(found(whole.substr(0, 30)), Kind::kWarning, "is cut off: an engine", "the mount removes the file"));
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, model + "/model", ""));
  EXPECT_TRUE(finds(found(whole), Kind::kWarning, "/model has 0 bytes", "nothing"));
  std::filesystem::remove(tag + "/" + name);
  EXPECT_TRUE(finds(found(whole), Kind::kBad, "names " + name, "rm -r " + tag));
}

TEST(FindingsOfEngines, NameACutIndexThatNoMountRemoves) {
  const TemporaryDirectory home;
  const std::string tag = home / "elsewhere/torch_compile_cache/0123456789/rank_0_0/backbone";
  ASSERT_TRUE(make_directories(tag));
  for (const auto& [index, wrong] : {std::pair("", "is empty"), std::pair("{((1, 128)", "is cut off")}) {
    ASSERT_TRUE(write_file_atomically(AT_FDCWD, tag + "/vllm_compile_cache.py", index));
    const auto found = engine_findings(home, {{"VLLM_CACHE_ROOT", home / "elsewhere"}});
    EXPECT_TRUE(finds(found, Kind::kBad, std::string(wrong) + ": vLLM ends with an error", "rm -r " + tag));
  }
}

TEST(FindingsOfEngines, QuoteWhatAUserPastes) {
  const TemporaryDirectory home;
  const std::string root = home / "m/vllm";
  const std::string tag = root + "/torch_compile_cache/0123456789/rank_0_0/" + kEvil;
  ASSERT_TRUE(make_directories(tag));
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, tag + "/vllm_compile_cache.py", ""));
  const auto found = engine_findings(home, {{"VLLM_CACHE_ROOT", root}});
  EXPECT_TRUE(finds(found, Kind::kWarning, "is empty", "rm -r '" + tag + "', while")) << findings_text(found);
  const auto elsewhere = findings_of_engines(
      [](const char* name) {
        return std::string_view(name) == "VLLM_CACHE_ROOT" ? std::optional<std::string>("/x") : std::nullopt;
      },
      [](const std::string&) { return std::string(); }, "/m/" + kEvil, home.path(),
      Deadline::after(Milliseconds(60'000)));
  EXPECT_TRUE(finds(elsewhere, Kind::kBad, "lies in no mount", "export VLLM_CACHE_ROOT='/m/" + kEvil + "/vllm'"))
      << findings_text(elsewhere);
}

TEST(FindingsOfEngines, AskForNothingWhereThereAreManyHashes) {
  const TemporaryDirectory home;
  const std::string compiled = home / "m/vllm/torch_compile_cache";
  for (int i = 0; i < 1000; ++i) std::filesystem::create_directories(compiled + "/" + std::to_string(i));
  const auto found = engine_findings(home, {{"VLLM_CACHE_ROOT", home / "m/vllm"}});
  EXPECT_TRUE(finds(found, Kind::kWarning, "has 1000 hashes", "nothing has to be done")) << findings_text(found);
  EXPECT_FALSE(finds(found, Kind::kWarning, "has 1000 hashes", "purge")) << "it removes what is loaded daily, too";
}

TEST(FindingsText, CountsWhatIsBad) {
  EXPECT_EQ(
      findings_text({{Kind::kGood, "one", ""}, {Kind::kBad, "two", "do this"}, {Kind::kWarning, "three", "do that"}}),
      "ok       one\nBAD      two\n         -> do this\nwarning  three\n         -> do that\n1 bad, 1 warnings\n");
}

}  // namespace
}  // namespace inductorfs::cli
