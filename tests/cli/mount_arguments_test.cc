// SPDX-License-Identifier: Apache-2.0
#include "cli/common/mount_arguments.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <map>

#include "cli/common/answer_text.h"
#include "inductorfs/base/fd.h"
#include "mount_words.h"
#include "support/temporary_directory.h"

namespace inductorfs::cli {
namespace {

using Given = testing::MountWords;

TEST(MountArguments, AreHandedOnAsText) {
  const Given given(
      {"--remote", "redis://h", "--also", "a=/x", "--also", "b=/y", "--no-also", "--no-allow-other", "--threads", "2"});
  const config::RawValues values = given.options.values();

  EXPECT_EQ(values.at("remote"), std::vector<std::string>{"redis://h"});
  EXPECT_EQ(values.at("also"), (std::vector<std::string>{"a=/x", "b=/y"}));
  EXPECT_EQ(values.at("no-also"), std::vector<std::string>{"true"});
  EXPECT_EQ(values.at("allow-other"), std::vector<std::string>{"false"});
  EXPECT_FALSE(values.contains("store"));
}

TEST(MountArguments, AlsoTakesOneValueEachTime) {
  const Given given({"--also", "a=/x", "/m"});
  EXPECT_EQ(given.rest, std::vector<std::string>{"/m"});
  EXPECT_EQ(given.options.values().at("also"), std::vector<std::string>{"a=/x"});
}

TEST(MountArguments, BothOfAPairAreAContradiction) {
  const auto error = [](std::initializer_list<std::string> words) {
    const Given given(words);
    const Result<void> checked = given.options.check();
    return checked ? "no error" : checked.error().what();
  };
  const std::string other = "--allow-other and --no-allow-other contradict each other: command line: give one of them";
  EXPECT_EQ(error({"--allow-other", "--no-allow-other"}), other);
  EXPECT_EQ(error({"--no-allow-other", "--threads", "2", "--allow-other"}), other);
  EXPECT_EQ(error({"--also", "a=/x", "--no-also"}),
            "--also and --no-also contradict each other: command line: give one of them");
  EXPECT_NE(error({"--python", "/p", "--fingerprint", "/f"}).find("--python and --fingerprint exclude each other"),
            std::string::npos);
  EXPECT_EQ(error({"--allow-other", "--allow-other"}), "no error");
  EXPECT_EQ(error({"--no-allow-other", "--no-also"}), "no error");
}

TEST(MountArguments, BothOfAPairInOneFileAreAContradiction) {
  const testing::TemporaryDirectory directory;
  const std::string file = directory / "c.toml";
  const auto error = [&](const std::string& text, std::initializer_list<std::string> more) {
    EXPECT_TRUE(write_file_atomically(AT_FDCWD, file, text).has_value());
    std::vector<std::string> words{"--config", file};
    words.insert(words.end(), more);
    const Result<config::Settings> settings = Given(words).settings("/m");
    return settings ? "no error" : settings.error().what();
  };
  EXPECT_EQ(error("also = [\"a=/x\"]\nno-also = true\n", {}),
            "--also and --no-also contradict each other: " + file + ": give one of them");
  EXPECT_EQ(error("also = [\"a=/x\"]\nno-also = false\n", {}), "no error");
  EXPECT_EQ(error("also = [\"a=/x\"]\n", {"--no-also"}), "no error") << "the command line wins over the file";
}

TEST(MountArguments, TheCommandLineWinsOverTheFile) {
  const testing::TemporaryDirectory directory;
  const std::string file = directory / "c.toml";
  ASSERT_TRUE(
      write_file_atomically(AT_FDCWD, file, "threads = 4\nprefix = \"of-file\"\nstore = \"rel\"\nallow-other = true\n")
          .has_value());

  const Result<config::Settings> settings =
      Given({"--config", file.c_str(), "--threads", "2", "--no-allow-other"}).settings("/m");

  ASSERT_TRUE(settings.has_value()) << settings.error().what();
  EXPECT_EQ(settings->threads, 2U);
  EXPECT_EQ(settings->prefix, "of-file");
  EXPECT_EQ(settings->allow_other, std::optional<bool>(false));
  EXPECT_EQ(settings->store, directory.path() + "/rel");
}

TEST(MountArguments, FactsComeFromTheConfigurationOfAMountToo) {
  const testing::TemporaryDirectory directory;
  const std::string file = directory / "c.toml";
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, file,
                                    "python = \"bin/python\"\nthreads = 4\n[environment]\nPTXAS_OPTIONS = \"-O1\"\n"
                                    "[families.fxgraph]\nshared = false\n")
                  .has_value());
  const Result<config::Settings> settings = Given({"--config", file.c_str()}).options.facts_settings();
  ASSERT_TRUE(settings.has_value()) << settings.error().what();
  EXPECT_EQ(settings->python, directory / "bin/python");
  EXPECT_EQ(settings->environment.at("PTXAS_OPTIONS"), "-O1");
  ASSERT_EQ(settings->families.size(), 1U);
  EXPECT_EQ(settings->families.front().family, "fxgraph");
}

TEST(MountArguments, OfOptionsThatExcludeEachOtherTheLaterSourceCounts) {
  const testing::TemporaryDirectory directory;
  const std::string file = directory / "c.toml";
  const auto settings_of = [&](const std::string& text, std::initializer_list<std::string> more) {
    EXPECT_TRUE(write_file_atomically(AT_FDCWD, file, text).has_value());
    std::vector<std::string> words{"--config", file};
    words.insert(words.end(), more);
    Result<config::Settings> settings = Given(words).settings("/m");
    EXPECT_TRUE(settings.has_value()) << settings.error().what();
    return settings.value_or(config::Settings());
  };
  const config::Settings shown = settings_of("no-also = true\n", {"--also", "a=/x"});
  EXPECT_FALSE(shown.no_also);
  EXPECT_NE(std::ranges::find(shown.also, config::Also{"a", "/x"}), shown.also.end());
  const std::string text = configuration_text(shown, true);
  EXPECT_NE(text.find("\nalso = [\"a=/x\"]  # command line\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\n# no-also: not in force, because of also (command line)\n"), std::string::npos) << text;

  const config::Settings hidden = settings_of("also = [\"a=/x\"]\n", {"--no-also"});
  EXPECT_TRUE(hidden.also.empty());
  EXPECT_NE(configuration_text(hidden, false).find("\n# also: not in force, because of no-also (command line)\n"),
            std::string::npos);

  const config::Settings probed = settings_of("fingerprint = \"/f\"\n", {"--python", "/p"});
  EXPECT_EQ(probed.python + probed.fingerprint, "/p");
  const config::Settings read = settings_of("python = \"/p\"\n", {"--fingerprint", "/f"});
  EXPECT_EQ(read.python + read.fingerprint, "/f");
}

/// A variable of this process, for one test. Needs external synchronisation.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { EXPECT_EQ(setenv(name, value, 1), 0); }
  ~Variable() { EXPECT_EQ(unsetenv(name_), 0); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

using Declared = std::map<std::string, std::string>;

Declared declared_with(std::vector<std::string> words) {
  const Result<config::Settings> settings = Given(std::move(words)).settings("/m");
  EXPECT_TRUE(settings.has_value()) << settings.error().what();
  return settings ? settings->environment : Declared{{"error", settings.error().what()}};
}

TEST(MountArguments, TheVariablesOfAJobAreItsDeclaration) {
  const Variable tool("TRITON_PTXAS_PATH", "/usr/local/cuda/bin/ptxas");
  const Variable off("DISABLE_PTXAS_OPT", "0");
  const Variable of_no_matter("TRITON_CACHE_DIR", "/x");
  const Variable odd("PTXAS_OPTIONS", "-O1\n-O2");
  const Declared own = {{"TRITON_PTXAS_PATH", "/usr/local/cuda/bin/ptxas"}};
  EXPECT_EQ(declared_with({}), own);
  EXPECT_EQ(Given({}).options.facts_settings()->environment, own) << "and of inductorfs fingerprint";
}

TEST(MountArguments, AnExplicitDeclarationReplacesTheVariablesOfTheJob) {
  const testing::TemporaryDirectory directory;
  const std::string file = directory / "c.toml";
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, file, "[environment]\nPTXAS_OPTIONS = \"-O1\"\n").has_value());
  const Variable tool("TRITON_PTXAS_PATH", "/usr/local/cuda/bin/ptxas");
  EXPECT_EQ(declared_with({"--environment", "TRITON_F32_DEFAULT=ieee"}), (Declared{{"TRITON_F32_DEFAULT", "ieee"}}));
  EXPECT_EQ(declared_with({"--config", file}), (Declared{{"PTXAS_OPTIONS", "-O1"}}));
  EXPECT_EQ(declared_with({"--fingerprint", "/f.json"}), Declared{}) << "the file has the environment of its host";
}

TEST(MountArguments, ErrorsOfTheFileNameTheFile) {
  const testing::TemporaryDirectory directory;
  const std::string file = directory / "c.toml";
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, file, "threads = 0\n").has_value());

  const Result<config::Settings> settings = Given({"--config", file.c_str()}).settings("/m");

  ASSERT_FALSE(settings.has_value());
  EXPECT_EQ(settings.error().what().find("threads \"0\": " + file + ": "), 0U) << settings.error().what();
}

TEST(MountArguments, MakesTheMountpointAbsoluteAndKeepsItsSpelling) {
  const Result<config::Settings> settings = Given({}).settings("sub/../m/");
  ASSERT_TRUE(settings.has_value());
  EXPECT_EQ(settings->mountpoint, config::absolute_path("m", config::working_directory()));
  EXPECT_EQ(settings->alias, settings->mountpoint);
}

}  // namespace
}  // namespace inductorfs::cli
