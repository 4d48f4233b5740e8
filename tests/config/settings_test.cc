// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/config/settings.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "inductorfs/base/fd.h"
#include "inductorfs/catalog/catalog.h"
#include "inductorfs/config/given.h"
#include "support/temporary_directory.h"

namespace inductorfs::config {
namespace {

const Environment kNoEnvironment = [](const std::string&) { return std::optional<std::string>(); };
const User kAlice{1000, "alice", "/home/alice"};

Settings mounted_at(const std::string& mountpoint) {
  Settings settings;
  settings.mountpoint = mountpoint;
  settings.alias = mountpoint;
  return settings;
}

std::string error_of(const Result<void>& result) { return result ? "no error" : result.error().what(); }

/// What reading `text` as a configuration gives, or its error.
class ConfigurationFile : public ::testing::Test {
 protected:
  Result<Configuration> read(const std::string& text) {
    EXPECT_TRUE(write_file_atomically(AT_FDCWD, file_, text).has_value());
    return read_configuration(file_);
  }
  std::string error(const std::string& text) {
    const Result<Configuration> values = read(text);
    return values ? "no error" : values.error().what();
  }

  testing::TemporaryDirectory directory_;
  std::string file_ = directory_ / "c.toml";
};

TEST(ParseSize, KnowsPowersOf1024) {
  EXPECT_EQ(parse_size("0").value(), 0U);
  EXPECT_EQ(parse_size("512").value(), 512U);
  EXPECT_EQ(parse_size("3K").value(), 3072U);
  EXPECT_EQ(parse_size("20G").value(), 20ULL << 30);
  EXPECT_EQ(parse_size("1T").value(), 1ULL << 40);
}

TEST(ParseSize, TakesTheFormsThatPeopleWrite) {
  for (const char* text : {"10G", "10g", "10GiB", "10gib", "10GB", "10gb", "10 GiB", "10 g", "10.0G", "10240M"}) {
    EXPECT_EQ(parse_size(text).value_or(0), 10ULL << 30) << text;
  }
  EXPECT_EQ(parse_size("512B").value_or(0), 512U);
  EXPECT_EQ(parse_size("1.5K").value_or(0), 1536U);
  EXPECT_EQ(parse_size("1.5G").value_or(0), 3ULL << 29);
  EXPECT_EQ(parse_size("0.25 TiB").value_or(0), 1ULL << 38);
  EXPECT_EQ(parse_size("1.999999T").value_or(0), (1ULL << 40) + (999999ULL << 40) / 1000000);
}

TEST(ParseSize, RefusesAllElse) {
  for (const char* text : {"",
                           "K",
                           "-1",
                           " 1",
                           "1.5",
                           "1.5B",
                           ".5G",
                           "1.G",
                           "1..5G",
                           "1.5.5G",
                           "1e3",
                           "1iB",
                           "1 ",
                           "1KK",
                           "1  G",
                           "1G ",
                           "1E",
                           "1.0000001G",
                           "99999999999999999999",
                           "9999999999T",
                           "8388608.5T"}) {
    EXPECT_FALSE(parse_size(text).has_value()) << text;
  }
}

TEST(MountOptions, HaveHelpAndOneNameEach) {
  std::map<std::string_view, int> names;
  for (const Option& option : mount_options()) {
    EXPECT_FALSE(option.help.empty()) << option.name;
    EXPECT_EQ(++names[option.name], 1) << option.name;
    const bool takes_value = option.kind == Option::Kind::kText || option.kind == Option::Kind::kList;
    EXPECT_EQ(option.value_name.empty(), !takes_value) << option.name;
  }
}

TEST(MountOptions, DefaultsThatHelpShowsAreThoseInForce) {
  Settings shown;
  RawValues values;
  for (const Option& option : mount_options()) {
    const bool literal = option.kind == Option::Kind::kText && option.name != "store" && option.name != "python" &&
                         option.name != "log" && option.name != "ca-file" && option.name != "store-floor" &&
                         option.name != "user-bytes" && option.name != "trust" && option.name != "writers" &&
                         option.name != "mode" && option.name != "owner" && option.name != "cluster-name" &&
                         !option.default_text.empty();
    if (literal) values[std::string(option.name)] = {std::string(option.default_text)};
  }
  ASSERT_EQ(error_of(apply(values, "help", "/", shown)), "no error");

  const Settings defaults;
  EXPECT_GE(values.size(), 14U) << "a new option may come, none may be left out";
  EXPECT_EQ(shown.probe_interval, defaults.probe_interval);
  EXPECT_EQ(shown.store_limit, defaults.store_limit);
  EXPECT_EQ(shown.artefact_limit, defaults.artefact_limit);
  EXPECT_EQ(shown.prefetch, defaults.prefetch);
  EXPECT_EQ(shown.queue_limit, defaults.queue_limit);
  EXPECT_EQ(shown.user_files, defaults.user_files);
  EXPECT_EQ(defaults.queue_limit, catalog::CatalogOptions{}.queue_limit);
  EXPECT_EQ(shown.quiet_time, defaults.quiet_time);
  EXPECT_EQ(shown.poll_interval, defaults.poll_interval);
  EXPECT_EQ(shown.lookup_patience, defaults.lookup_patience);
  EXPECT_EQ(shown.threads, defaults.threads);
  EXPECT_EQ(shown.prefix, defaults.prefix);
  EXPECT_EQ(shown.start_timeout, defaults.start_timeout);
  EXPECT_EQ(shown.hang_timeout, defaults.hang_timeout);
  EXPECT_EQ(shown.crash_limit, defaults.crash_limit);
  EXPECT_EQ(shown.log_level, defaults.log_level);
}

TEST(Apply, SetsEveryKindOfValue) {
  Settings settings = mounted_at("/m");
  const RawValues values{{"remote", {"redis://h"}}, {"store", {"s"}},         {"also", {"a=/x", "b/c=y"}},
                         {"no-also", {"false"}},    {"log-level", {"debug"}}, {"store-limit", {"64M"}},
                         {"quiet-time", {"5"}},     {"threads", {"3"}},       {"allow-other", {"false"}},
                         {"start-timeout", {"7"}},  {"prefix", {"team.a"}},   {"foreground", {"true"}}};

  ASSERT_EQ(error_of(apply(values, "test", "/base", settings)), "no error");

  EXPECT_EQ(settings.remote, "redis://h");
  EXPECT_EQ(settings.store, "/base/s");
  EXPECT_EQ(settings.also, (std::vector<Also>{{"a", "/x"}, {"b/c", "/base/y"}}));
  EXPECT_EQ(settings.log_level, log::Level::kDebug);
  EXPECT_EQ(settings.store_limit, 64U << 20);
  EXPECT_EQ(settings.quiet_time, Milliseconds(5));
  EXPECT_EQ(settings.threads, 3U);
  EXPECT_EQ(settings.allow_other, std::optional<bool>(false));
  EXPECT_EQ(settings.start_timeout, std::chrono::seconds(7));
  EXPECT_EQ(settings.prefix, "team.a");
  EXPECT_TRUE(settings.foreground);
}

TEST(Apply, AListReplacesTheEarlierOne) {
  Settings settings = mounted_at("/m");
  ASSERT_TRUE(apply({{"also", {"a=/x", "b=/y"}}}, "file", "/", settings).has_value());
  ASSERT_TRUE(apply({{"also", {"c=/z"}}}, "command line", "/", settings).has_value());
  EXPECT_EQ(settings.also, (std::vector<Also>{{"c", "/z"}}));
}

TEST(Apply, TakesWhatConcernsFactsAndWriters) {
  Settings settings = mounted_at("/m");
  const RawValues values{{"writers", {"all"}},
                         {"probe-interval", {"0"}},
                         {"python", {"venv/bin/python"}},
                         {"environment", {"TRITON_DEFAULT_FP_FUSION=0", "PTXAS_OPTIONS=-O1 --x=y"}}};
  ASSERT_EQ(error_of(apply(values, "test", "/base", settings)), "no error");
  EXPECT_EQ(settings.writers, WritersPolicy::kAll);
  for (const char* writers : {"pod", "learned", "matching"}) {
    ASSERT_EQ(error_of(apply({{"writers", {writers}}}, "test", "/base", settings)), "no error");
    EXPECT_EQ(to_string(settings.writers.value()), writers);
  }
  EXPECT_NE(
      error_of(apply({{"writers", {"POD"}}}, "test", "/base", settings)).find("give learned, matching, pod or all"),
      std::string::npos);
  EXPECT_EQ(settings.probe_interval, std::chrono::seconds(0));
  EXPECT_EQ(settings.python, "/base/venv/bin/python");
  EXPECT_EQ(settings.environment,
            (std::map<std::string, std::string>{{"PTXAS_OPTIONS", "-O1 --x=y"}, {"TRITON_DEFAULT_FP_FUSION", "0"}}));
  ASSERT_EQ(error_of(apply({{"python", {"python3"}}, {"environment", {"PTXAS_OPTIONS="}}}, "test", "/", settings)),
            "no error");
  EXPECT_EQ(settings.python, "python3");
  EXPECT_EQ(settings.environment.size(), 1U);
}

TEST(Apply, NamesTheVariablesThereAre) {
  Settings settings = mounted_at("/m");
  const std::string error = error_of(apply({{"environment", {"HOME=/x"}}}, "here", "/", settings));
  EXPECT_NE(error.find("TRITON_DEFAULT_FP_FUSION"), std::string::npos) << error;
}

TEST(Apply, AListTouchesNoOther) {
  Settings settings = mounted_at("/m");
  ASSERT_TRUE(apply({{"also", {"a=/x"}}, {"environment", {"PTXAS_OPTIONS=a"}}}, "file", "/", settings).has_value());
  ASSERT_TRUE(apply({{"environment", {"PTXAS_OPTIONS=b"}}}, "command line", "/", settings).has_value());
  EXPECT_EQ(settings.also.size(), 1U);
  EXPECT_EQ(settings.environment.at("PTXAS_OPTIONS"), "b");
}

TEST(Apply, NamesTheOptionTheValueAndWhatItMayBe) {
  struct Case {
    const char* name;
    const char* value;
    const char* expected;
  };
  for (const Case& c :
       {Case{"store-limit", "10X", "store-limit \"10X\": here: give a number of bytes"},
        Case{"threads", "0", "threads \"0\": here: give a whole number from 1 to 256"},
        Case{"quiet-time", "soon", "quiet-time \"soon\": here: give a whole number"},
        Case{"log-level", "loud", "log-level \"loud\": here: give one of debug, info, warning, error"},
        Case{"prefix", "a b", "prefix \"a b\": here: give 1 to 64 characters"},
        Case{"also", "nothing", "also \"nothing\": here: give NAME=PATH"},
        Case{"also", "../up=/x", "also \"../up=/x\": here: give NAME=PATH"},
        Case{"also", "x=", "also \"x=\": here: give NAME=PATH"}, Case{"store", "", "store \"\": here: give a path"},
        Case{"remote", "", "remote \"\": here: give a URL, or leave it out for a local mount"},
        Case{"colour", "red", "unknown option: colour (here)"}}) {
    Settings settings = mounted_at("/m");
    const std::string error = error_of(apply({{c.name, {c.value}}}, "here", "/", settings));
    EXPECT_EQ(error.substr(0, std::string(c.expected).size()), c.expected);
  }
}

TEST_F(ConfigurationFile, HasTheNamesOfTheCommandLine) {
  const Result<Configuration> read_back = read(
      "remote = \"redis://h/1\"\nthreads = 4\nstore-limit = \"5G\"\nprefetch = 0\nno-also = true\n"
      "allow-other = false\nalso = [\"a=/x\", \"b=/y\"]\n");

  ASSERT_TRUE(read_back.has_value()) << read_back.error().what();
  const RawValues* const values = &read_back->values;
  EXPECT_EQ(values->at("remote"), std::vector<std::string>{"redis://h/1"});
  EXPECT_EQ(values->at("threads"), std::vector<std::string>{"4"});
  EXPECT_EQ(values->at("no-also"), std::vector<std::string>{"true"});
  EXPECT_EQ(values->at("allow-other"), std::vector<std::string>{"false"});
  EXPECT_EQ(values->at("also"), (std::vector<std::string>{"a=/x", "b=/y"}));
}

TEST_F(ConfigurationFile, NamesAnUnknownKeyAndItsLine) {
  EXPECT_EQ(error("threads = 4\nstore_limit = 1\n")
                .find("unknown key \"store_limit\"; did you mean store-limit?: " + file_ + ":2: "),
            0U);
  EXPECT_EQ(error("[remote]\nurl = \"x\"\n").find("wrong type for \"remote\": " + file_ + ":1: give a string"), 0U);
  EXPECT_EQ(error("mountpoint = \"/m\"\n").find("unknown key \"mountpoint\""), 0U);
  EXPECT_EQ(error("password = \"p\"\n").find("unknown key \"password\"; did you mean password-file?"), 0U);
  EXPECT_EQ(error("redis_url = \"r\"\n").find("unknown key \"redis_url\"; did you mean remote?"), 0U);
  EXPECT_NE(error("remote = redis://h\n").find("write text in quotes"), std::string::npos);
}

TEST_F(ConfigurationFile, TakesVariablesAsATable) {
  const Result<Configuration> read_back =
      read("[environment]\nTRITON_DEFAULT_FP_FUSION = 0\nPTXAS_OPTIONS = \"-O1\"\n");
  ASSERT_TRUE(read_back.has_value()) << read_back.error().what();
  EXPECT_EQ(read_back->values.at("environment"),
            (std::vector<std::string>{"PTXAS_OPTIONS=-O1", "TRITON_DEFAULT_FP_FUSION=0"}));
  EXPECT_NE(error("[environment]\nPTXAS_OPTIONS = true\n").find(file_ + ":2: give a string or a number"),
            std::string::npos);
  EXPECT_EQ(read("environment = [\"PTXAS_OPTIONS=x\"]\n")->values.at("environment").size(), 1U);
}

TEST_F(ConfigurationFile, TakesChangesOfFamilies) {
  const Result<Configuration> read_back = read(
      "[families.fxgraph]\nshared = false\n"
      "[families.cpp_binary]\nfacets = [\"torch\", \"gpu-arch\"]\n"
      "[families.mine]\npattern = \"mine/*.bin\"\nshared = true\nfacets = [\"torch\"]\n");
  ASSERT_TRUE(read_back.has_value()) << read_back.error().what();
  ASSERT_EQ(read_back->families.size(), 3U);
  const auto& families = read_back->families;  // in name order
  EXPECT_EQ(families[0].family, "cpp_binary");
  EXPECT_EQ(families[0].facets, (std::vector{fingerprint::Facet::kTorch, fingerprint::Facet::kGpuArch}));
  EXPECT_FALSE(families[0].shared.has_value());
  EXPECT_EQ(families[1].shared, std::optional<bool>(false));
  EXPECT_EQ(families[2].pattern, "mine/*.bin");
}

TEST_F(ConfigurationFile, NamesAMistakeInAFamily) {
  EXPECT_EQ(error("families = 3\n").find("wrong type for \"families\": " + file_ + ":1: "), 0U);
  EXPECT_EQ(error("[families]\nx = 1\n").find("wrong type for \"families.x\": " + file_ + ":2: "), 0U);
  EXPECT_EQ(error("[families.x]\nshard = true\n")
                .find("unknown key \"families.x.shard\"; did you mean shared?: " + file_ + ":2: "),
            0U);
  EXPECT_EQ(error("[families.x]\ncolour = 1\n").find("unknown key \"families.x.colour\": " + file_ + ":2: "), 0U);
  EXPECT_EQ(error("[families.x]\nshared = 1\n").find("wrong type for \"shared\": " + file_ + ":2: "), 0U);
  EXPECT_EQ(error("[families.x]\nfacets = [\"weather\"]\n").find("no such facet: \"weather\": " + file_ + ":2: "), 0U);
}

TEST_F(ConfigurationFile, NamesAWrongType) {
  EXPECT_NE(error("no-also = \"yes\"\n").find("wrong type for \"no-also\""), std::string::npos);
  EXPECT_NE(error("threads = true\n").find("give a string or a number"), std::string::npos);
  EXPECT_NE(error("also = [1]\n").find("give a list of strings"), std::string::npos);
  EXPECT_NE(error("threads = 1.5\n").find("wrong type"), std::string::npos);
}

TEST_F(ConfigurationFile, NamesTheLineOfASyntaxError) {
  const std::string text = error("threads = 4\nthis is no toml\n");
  EXPECT_EQ(text.find("the configuration is not valid TOML: " + file_ + ":2: "), 0U) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos);
}

TEST_F(ConfigurationFile, ThatIsMissingIsAnError) {
  const Result<Configuration> values = read_configuration(directory_ / "none.toml");
  ASSERT_FALSE(values.has_value());
  EXPECT_EQ(values.error().code(), ErrorCode::kNotFound);
  EXPECT_NE(values.error().what().find("none.toml: it does not exist"), std::string::npos);
}

/// What torch has in alice's default directory.
const std::vector<Also> kAlicesPlaces = {
    {"precompiled_headers", "/tmp/torchinductor_alice/precompiled_headers"},
    {"cache/should_pad", "/tmp/torchinductor_alice/cache/should_pad"},
    {"cache/inductor_on_disk_cache", "/tmp/torchinductor_alice/cache/inductor_on_disk_cache"}};

std::vector<Also> and_then(std::vector<Also> places, const std::vector<Also>& more) {
  places.insert(places.end(), more.begin(), more.end());
  return places;
}

TEST(Complete, ShowsWhatTorchKeepsInItsDefaultDirectory) {
  Settings settings = mounted_at("/m");
  ASSERT_TRUE(complete(settings, kAlice, kNoEnvironment).has_value());
  EXPECT_EQ(settings.also, kAlicesPlaces);
  EXPECT_EQ(settings.store, "/home/alice/.cache/inductorfs/store/m");
  EXPECT_EQ(settings.allow_other, std::optional<bool>(false));
}

TEST(Complete, LeavesThatOutWhereItMakesNoSense) {
  Settings off = mounted_at("/m");
  off.no_also = true;
  off.also = {{"a", "/x"}};
  ASSERT_TRUE(complete(off, kAlice, kNoEnvironment).has_value());
  EXPECT_TRUE(off.also.empty());

  Settings itself = mounted_at("/tmp/torchinductor_alice");
  ASSERT_TRUE(complete(itself, kAlice, kNoEnvironment).has_value());
  EXPECT_TRUE(itself.also.empty());

  Settings given = mounted_at("/m");
  given.also = {{"precompiled_headers", "/elsewhere"}, {"mine", "/tmp/torchinductor_alice/cache/should_pad"}};
  const std::vector<Also> own = given.also;
  ASSERT_TRUE(complete(given, kAlice, kNoEnvironment).has_value());
  EXPECT_EQ(given.also, and_then(own, {kAlicesPlaces[2]}));
}

TEST(Complete, GivesTheDefaultPlacesToTheMountpointsOwner) {
  const User root{0, "root", "/root"};
  Settings settings = mounted_at("/m");
  settings.also = {{"a", "/x"}};
  ASSERT_TRUE(complete(settings, root, kNoEnvironment).has_value());
  give_default_places(settings, kAlice);
  EXPECT_EQ(settings.also, and_then({{"a", "/x"}}, kAlicesPlaces));

  Settings given = mounted_at("/m");
  given.also = {{"precompiled_headers", "/elsewhere"},
                {"cache/should_pad", "/tmp/torchinductor_root/cache/should_pad"},
                {"cache/inductor_on_disk_cache", "/there"}};
  const std::vector<Also> own = given.also;
  ASSERT_TRUE(complete(given, root, kNoEnvironment).has_value());
  give_default_places(given, kAlice);
  EXPECT_EQ(given.also, own);
}

TEST(Complete, LetsOthersInForRootOnly) {
  Settings settings = mounted_at("/m");
  ASSERT_TRUE(complete(settings, {0, "root", "/root"}, kNoEnvironment).has_value());
  EXPECT_EQ(settings.allow_other, std::optional<bool>(true));
}

TEST(Complete, PartsTheUsersOfRootsMountOnly) {
  Settings settings = mounted_at("/m");
  ASSERT_TRUE(complete(settings, {0, "root", "/root"}, kNoEnvironment).has_value());
  EXPECT_EQ(settings.trust, fingerprint::TrustPolicy::kUser);
  Settings own = mounted_at("/m");
  ASSERT_TRUE(complete(own, kAlice, kNoEnvironment).has_value());
  EXPECT_EQ(own.trust, fingerprint::TrustPolicy::kAll);
}

TEST(Complete, LearnsEnvironmentsWhereNoneIsDeclared) {
  const auto policy_of = [](const RawValues& values, const Environment& environment, const char* where) {
    Settings settings = mounted_at("/m");
    settings.given.push_back({values, where, "/"});
    EXPECT_EQ(error_of(apply(values, where, "/", settings)), "no error");
    EXPECT_TRUE(complete(settings, kAlice, environment).has_value());
    return settings.writers;
  };
  const Environment active = [](const std::string& name) {
    return name == "VIRTUAL_ENV" ? std::optional<std::string>("/venv") : std::nullopt;
  };
  const RawValues variable{{"environment", {"TRITON_PTXAS_PATH=/x"}}};
  EXPECT_EQ(policy_of({}, kNoEnvironment, "command line"), WritersPolicy::kLearned);
  EXPECT_EQ(policy_of(variable, kNoEnvironment, kOwnVariables.data()), WritersPolicy::kLearned)
      << "each job has its own";
  EXPECT_EQ(policy_of(variable, kNoEnvironment, "command line"), WritersPolicy::kMatching);
  EXPECT_EQ(policy_of({{"python", {"/p"}}}, kNoEnvironment, "command line"), WritersPolicy::kMatching);
  EXPECT_EQ(policy_of({{"fingerprint", {"/f"}}}, kNoEnvironment, "c.toml"), WritersPolicy::kMatching);
  EXPECT_EQ(policy_of({}, active, "command line"), WritersPolicy::kMatching);
  EXPECT_EQ(policy_of({{"writers", {"learned"}}}, active, "command line"), WritersPolicy::kLearned);
}

TEST(Complete, RefusesToPartUsersWhoseFilesAllBelongToOne) {
  for (const auto policy : {fingerprint::TrustPolicy::kUser, fingerprint::TrustPolicy::kGroup}) {
    Settings settings = mounted_at("/m");
    settings.trust = policy;
    EXPECT_TRUE(complete(settings, kAlice, kNoEnvironment).has_value()) << "a mount of one user";
    settings.allow_other = true;
    const std::string error = error_of(complete(settings, kAlice, kNoEnvironment));
    EXPECT_NE(error.find("with --allow-other: all files would belong to this user"), std::string::npos) << error;
    EXPECT_TRUE(complete(settings, {0, "root", "/root"}, kNoEnvironment).has_value());
  }
}

TEST(Complete, RefusesPlacesThatLieInEachOther) {
  const auto error = [](auto change) {
    Settings settings = mounted_at("/m/c");
    change(settings);
    return error_of(complete(settings, kAlice, kNoEnvironment));
  };
  EXPECT_NE(error([](Settings& s) { s.store = "/m/c/store"; }).find("--store and the mountpoint must not"),
            std::string::npos);
  EXPECT_NE(error([](Settings& s) { s.store = "/m"; }).find("--store and the mountpoint must not"), std::string::npos);
  EXPECT_NE(error([](Settings& s) { s.log = "/m/c/log"; }).find("--log must not lie in the mount"), std::string::npos);
  EXPECT_NE(error([](Settings& s) {
              s.also = {{"a", "/m/c/a"}};
            }).find("must not show the mount inside itself"),
            std::string::npos);
  EXPECT_NE(error([](Settings& s) {
              s.store = "/s/t";
              s.also = {{"a", "/s"}};
            }).find("must not hide the store"),
            std::string::npos);
  EXPECT_EQ(error([](Settings& s) { s.store = "/m/c2"; }), "no error");
}

TEST(GivenBy, TakesEachOptionFromItsVariable) {
  for (const Option& option : mount_options()) {
    const std::string name = variable_of(option);
    EXPECT_TRUE(name.starts_with("INDUCTORFS_")) << name;
    EXPECT_EQ(name.find_first_of("-abcdefghijklmnopqrstuvwxyz"), std::string::npos) << name;
  }
  const auto given = given_by({{"INDUCTORFS_STORE_LIMIT", "80G"},
                               {"INDUCTORFS_ALSO", "a=/x,b=/y,"},
                               {"INDUCTORFS_NO_ALSO", "false"},
                               {"INDUCTORFS_BUILD", "no option"},
                               {"HOME", "/root"}},
                              "/base");
  ASSERT_TRUE(given);
  RawValues all;
  for (const GivenValues& one : *given) {
    EXPECT_EQ(one.base, "/base");
    ASSERT_EQ(one.values.size(), 1U);
    EXPECT_TRUE(one.where.starts_with("variable INDUCTORFS_")) << one.where;
    all.insert(*one.values.begin());
  }
  EXPECT_EQ(all, (RawValues{{"store-limit", {"80G"}}, {"also", {"a=/x", "b=/y"}}, {"no-also", {"false"}}}));
  const auto bad = given_by({{"INDUCTORFS_FOREGROUND", "1"}}, "/");
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().what(),
            "foreground \"1\": variable INDUCTORFS_FOREGROUND: give true or false, or unset the variable");
  const auto both = given_by({{"INDUCTORFS_ALSO", "a=/x"}, {"INDUCTORFS_NO_ALSO", "true"}}, "/");
  ASSERT_FALSE(both);
  EXPECT_EQ(both.error().what(),
            "--also and --no-also contradict each other: variables INDUCTORFS_...: give one of them");
}

TEST(Settings, AnOptionIsInForceUntilALaterSourceExcludesIt) {
  const GivenValues shown{{{"also", {"a=/x"}}}, "file", "/"};
  const GivenValues hidden{{{"no-also", {"true"}}}, "variable INDUCTORFS_NO_ALSO", "/"};
  const GivenValues not_hidden{{{"no-also", {"false"}}}, "command line", "/"};
  EXPECT_EQ(overruled_by({shown, hidden}, "also"), "no-also (variable INDUCTORFS_NO_ALSO)");
  EXPECT_EQ(overruled_by({shown, hidden}, "no-also"), "");
  EXPECT_EQ(overruled_by({hidden, shown}, "also"), "");
  EXPECT_EQ(overruled_by({hidden, shown}, "no-also"), "also (file)");
  EXPECT_EQ(overruled_by({shown, not_hidden}, "also"), "") << "false asks for nothing";
  EXPECT_EQ(overruled_by({hidden}, "also"), "") << "nobody gave it";
  EXPECT_EQ(overruled_by({shown, hidden}, "store"), "");
}

TEST(Variables, OfNoOptionAreToldWithTheOneThatIsMeant) {
  const auto told = [](const std::string& name) {
    const auto lines = unknown_variables({{name, "x"}, {"HOME", "/root"}});
    return lines.empty() ? std::string() : lines.front();
  };
  EXPECT_EQ(told("INDUCTORFS_REMOT"),
            "no option has the variable INDUCTORFS_REMOT; did you mean INDUCTORFS_REMOTE?; it is ignored: inductorfs "
            "config show lists all options");
  EXPECT_NE(told("INDUCTORFS_PASSWORD").find("did you mean INDUCTORFS_PASSWORD_FILE?"), std::string::npos);
  EXPECT_NE(told("INDUCTORFS_REMOTE_URL").find("did you mean INDUCTORFS_REMOTE?"), std::string::npos);
  EXPECT_NE(told("INDUCTORFS_COLOUR").find("it is ignored"), std::string::npos);
  EXPECT_EQ(told("INDUCTORFS_COLOUR").find("did you mean"), std::string::npos);
  EXPECT_NE(told("INDUCTORFS_" + std::string(100'000, 'A')), "");
  for (const Option& option : mount_options()) EXPECT_EQ(told(variable_of(option)), "");
  for (const char* known : {"INDUCTORFS_FAIL_POINT", "INDUCTORFS_BUILD_DIR", "INDUCTORFS_SERVICE_HOST",
                            "INDUCTORFS_SERVICE_PORT_REDIS", "INDUCTORFS_PORT_6379_TCP_ADDR", "INDUCTORFS_PORT",
                            "INDUCTORFS_CACHE_SERVICE_HOST", "INDUCTORFS_CACHE_PORT_6379_TCP", "MY_INDUCTORFS_REMOT"}) {
    EXPECT_EQ(told(known), "");
  }
  std::map<std::string, std::string> many;
  for (int i = 0; i < 1000; ++i) many["INDUCTORFS_COLOUR_" + std::to_string(i)] = "x";
  EXPECT_EQ(unknown_variables(many).size(), 10U);
}

}  // namespace
}  // namespace inductorfs::config
