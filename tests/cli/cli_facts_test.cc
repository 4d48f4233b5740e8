// SPDX-License-Identifier: Apache-2.0
#include "cli_fixture.h"

/// The built program: the facts of a host, shown, compared, and changed under a mount.
namespace inductorfs::cli {

using config::Json;

namespace {

TEST_F(Cli, ShowsAFingerprintThatMountTakes) {
  const Outcome json = run({"fingerprint", "--json", "--fingerprint", facts_});
  ASSERT_EQ(json.code, 0) << json.err;
  EXPECT_TRUE(fingerprint::Fingerprint::from_json(json.out).has_value());
  const Outcome text = run({"fingerprint", "--fingerprint", facts_});
  EXPECT_EQ(text.code, 0);
  EXPECT_NE(text.out.find("scopes\n"), std::string::npos);
}

TEST_F(Cli, SaysInAFingerprintWhatItsLibstdcxxOffers) {
  const Outcome json = run({"fingerprint", "--json", "--python", "/usr/bin/python3"});
  ASSERT_EQ(json.code, 0) << json.err;
  const auto facts = fingerprint::Fingerprint::from_json(json.out);
  ASSERT_TRUE(facts.has_value());
  const fingerprint::Fact& libc = facts->get(fingerprint::Facet::kLibc);
  EXPECT_EQ(libc.details.find("glibcxx=3."), 0U) << libc.details;
  EXPECT_NE(libc.details.find("\ncxxabi=1."), std::string::npos) << libc.details;
  EXPECT_EQ(libc.value.find("glibcxx"), std::string::npos) << libc.value;
}

TEST_F(Cli, ComparesTwoHosts) {
  const std::string other = directory_ / "other.json";
  write_facts(other, {{fingerprint::Facet::kGpu, "device=H200"}});
  const Outcome text = run({"fingerprint", "--fingerprint", facts_, "--compare", other});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("best_config         NOT shared: gpu\n"), std::string::npos) << text.out;
  const Outcome json = run({"fingerprint", "--json", "--fingerprint", facts_, "--compare", other});
  EXPECT_TRUE(Json::parse(json.out, nullptr, false)["families"].is_array()) << json.out;
  expect_refusal(run({"fingerprint", "--fingerprint", facts_, "--compare", directory_ / "none"}),
                 {directory_ / "none", "does not exist"}, 2);
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, directory_ / "text", "no facts").has_value());
  expect_refusal(run({"fingerprint", "--fingerprint", facts_, "--compare", directory_ / "text"}),
                 {"no fingerprint: ", directory_ / "text"}, 2);
  expect_refusal(run({"fingerprint", "--fingerprint", directory_ / "none"}), {directory_ / "none", "does not exist"},
                 2);
}

TEST_F(Cli, ShowsTheFamiliesThatAConfigurationMakes) {
  const std::string file = directory_ / "c.toml";
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, file,
                                    "[families.fxgraph]\nshared = false\n[families.tables]\n"
                                    "pattern = \"tables/*.bin\"\nshared = true\nfacets = [\"torch\"]\n")
                  .has_value());
  const Outcome outcome = run({"fingerprint", "--json", "--families", "--fingerprint", facts_, "--config", file});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::map<std::string, bool> shared;
  const Json report = Json::parse(outcome.out, nullptr, false);
  for (const Json& family : report["families"]) shared[family["family"]] = family["shared"];
  EXPECT_FALSE(shared.at("fxgraph"));
  EXPECT_TRUE(shared.at("aotautograd"));
  EXPECT_TRUE(shared.at("tables"));

  ASSERT_TRUE(write_file_atomically(AT_FDCWD, file, "[families.lock]\nshared = true\n").has_value());
  expect_refusal(run({"fingerprint", "--families", "--fingerprint", facts_, "--config", file}), {file, "lock"}, 2);
  expect_refusal(run(mount_arguments({"--config", file})), {file, "lock"}, 2);
  EXPECT_FALSE(is_mounted());
}

TEST_F(Cli, DeclaresVariables) {
  const Outcome plain = run({"fingerprint", "--json", "--fingerprint", facts_});
  const Outcome declared =
      run({"fingerprint", "--json", "--fingerprint", facts_, "--environment", "TRITON_DEFAULT_FP_FUSION=0"});
  const auto facet = [](const Outcome& outcome) { return Json::parse(outcome.out)["facets"]["environment"]["value"]; };
  EXPECT_NE(facet(plain), facet(declared));
  EXPECT_EQ(facet(declared), "TRITON_DEFAULT_FP_FUSION=0");
  EXPECT_EQ(run({"mount", mount_, "--environment", "HOME=/x"}).code, 2);
}

TEST_F(CliMount, FollowsTheFactsOfItsHost) {
  const std::string tuning = mount_ + "/ab/" + std::string(64, 'a') + ".best_config";
  const std::string text = R"({"XBLOCK": 8, "num_warps": 4, "num_stages": 1, "configs_hash": ")" +
                           std::string(64, 'b') + R"(", "found_by_coordesc": false, "time_taken_ms": 5})";
  write_facts(facts_, {{fingerprint::Facet::kGpu, "device=H100"}});
  mount({"--no-also", "--probe-interval", "0"});
  const pid_t pid = daemon_pid();
  ASSERT_TRUE(make_directories(mount_ + "/ab").has_value());
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, tuning, text).has_value());
  ASSERT_EQ(run({"sync", mount_}).code, 0);
  const Result<Fd> open_file = open_at(AT_FDCWD, tuning, O_RDONLY);
  ASSERT_TRUE(open_file.has_value());
  const auto look_with = [&](const char* gpu, uint64_t changes) {
    write_facts(facts_, {{fingerprint::Facet::kGpu, gpu}});
    EXPECT_EQ(::kill(pid, SIGHUP), 0);
    EXPECT_TRUE(eventually([&] { return status()["facts"]["changes"] == changes; })) << contents(store_ + "/log");
  };

  look_with("device=H200", 1);

  EXPECT_TRUE(eventually([&] { return !exists(tuning); }));
  char first = 0;
  EXPECT_EQ(::pread(open_file->get(), &first, 1, 0), 1);
  EXPECT_EQ(status()["facts"]["last_change"][0], "gpu: device=H100 -> device=H200");
  const Outcome explained = run({"explain", tuning});
  EXPECT_NE(explained.out.find("visible       no: "), std::string::npos) << explained.out;
  EXPECT_NE(explained.out.find("device=H200"), std::string::npos) << explained.out;

  look_with("device=H100", 2);

  EXPECT_TRUE(eventually([&] { return contents(tuning) == text; }));
}

TEST_F(CliMount, KeepsItsFactsWhenTheFileIsDamaged) {
  mount({"--no-also", "--probe-interval", "0"});
  const pid_t pid = daemon_pid();
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, facts_, "{").has_value());
  ASSERT_EQ(::kill(pid, SIGHUP), 0);
  EXPECT_TRUE(eventually([&] { return !status()["facts"]["problem"].get<std::string>().empty(); }));
  EXPECT_EQ(status()["facts"]["changes"], 0);
  EXPECT_TRUE(status()["private_families"].empty());
}

TEST_F(CliMount, ReadsItsFactsByTheTimer) {
  mount({"--no-also", "--probe-interval", "1"});
  write_facts(facts_, {{fingerprint::Facet::kTorch, "version=3"}});
  EXPECT_TRUE(eventually([&] { return status()["facts"]["changes"] == 1; })) << contents(store_ + "/log");
}

TEST_F(CliMount, KeepsToItselfWhatOtherProgramsWrite) {
  const std::string tuning = mount_ + "/ab/" + std::string(64, 'a') + ".best_config";
  const Outcome outcome =
      run({"mount", mount_, "--store", store_, "--fingerprint", facts_, "--quiet-time", "50", "--no-also"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  ASSERT_TRUE(make_directories(mount_ + "/ab").has_value());
  ASSERT_TRUE(
      write_file_atomically(AT_FDCWD, tuning, R"({"configs_hash": ")" + std::string(64, 'b') + R"("})").has_value());
  ASSERT_EQ(run({"sync", mount_}).code, 0);

  EXPECT_TRUE(eventually([&] { return status()["file_system"]["foreign"] == 1; }));
  EXPECT_TRUE(exists(tuning));
  EXPECT_FALSE(status()["file_system"]["foreign_reasons"].empty());
  EXPECT_NE(run({"status", mount_}).out.find("foreign       1 artefacts stay here"), std::string::npos);
}

}  // namespace
}  // namespace inductorfs::cli
