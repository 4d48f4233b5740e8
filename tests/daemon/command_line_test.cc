// SPDX-License-Identifier: Apache-2.0
#include "command_line.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <initializer_list>

#include "inductorfs/base/fd.h"
#include "support/temporary_directory.h"

namespace inductorfs::daemon {
namespace {

using Verb = Invocation::Verb;

Invocation parse(std::initializer_list<const char*> arguments) {
  std::vector<const char*> argv{"inductorfs"};
  argv.insert(argv.end(), arguments);
  return parse_command_line(static_cast<int>(argv.size()), argv.data());
}

const Environment kNoEnvironment = [](const std::string&) { return std::optional<std::string>(); };
const User kUser{1000, "alice", "/home/alice"};

TEST(CommandLine, KnowsEveryCommand) {
  EXPECT_EQ(parse({"mount", "/m"}).verb, Verb::kMount);
  EXPECT_EQ(parse({"unmount", "/m"}).verb, Verb::kUnmount);
  EXPECT_EQ(parse({"status", "/m"}).verb, Verb::kStatus);
  EXPECT_EQ(parse({"sync", "/m"}).verb, Verb::kSync);
  EXPECT_EQ(parse({"explain", "/m/x"}).verb, Verb::kExplain);
  EXPECT_EQ(parse({"fingerprint"}).verb, Verb::kFingerprint);
  EXPECT_EQ(parse({"gpu-probe"}).verb, Verb::kGpuProbe);
  EXPECT_EQ(parse({"package-facts"}).verb, Verb::kPackageFacts);
}

TEST(CommandLine, TakesTheFlagsOfEachCommand) {
  EXPECT_TRUE(parse({"unmount", "/m", "--lazy"}).lazy);
  EXPECT_TRUE(parse({"status", "--json", "/m"}).json);
  EXPECT_EQ(parse({"sync", "/m", "--timeout", "3"}).timeout, std::chrono::seconds(3));
  EXPECT_EQ(parse({"explain", "/m/x"}).path, "/m/x");
  const Invocation facts = parse({"fingerprint", "--python", "/p", "--fingerprint", "f.json", "--compare", "g.json"});
  EXPECT_EQ(facts.options.at("fingerprint"), std::vector<std::string>{"f.json"});
  EXPECT_EQ(facts.options.at("python"), std::vector<std::string>{"/p"});
  EXPECT_EQ(facts.compare, "g.json");
  EXPECT_TRUE(parse({"fingerprint", "--families"}).families);
}

TEST(CommandLine, HandsMountOptionsOnAsText) {
  const Invocation mount = parse({"mount", "/m", "--remote", "redis://h", "--also", "a=/x", "--also", "b=/y",
                                  "--no-also", "--no-allow-other", "--threads", "2"});

  ASSERT_EQ(mount.verb, Verb::kMount) << mount.text;
  EXPECT_EQ(mount.options.at("remote"), std::vector<std::string>{"redis://h"});
  EXPECT_EQ(mount.options.at("also"), (std::vector<std::string>{"a=/x", "b=/y"}));
  EXPECT_EQ(mount.options.at("no-also"), std::vector<std::string>{"true"});
  EXPECT_EQ(mount.options.at("allow-other"), std::vector<std::string>{"false"});
  EXPECT_FALSE(mount.options.contains("store"));
}

TEST(CommandLine, AlsoTakesOneValueEachTime) {
  const Invocation mount = parse({"mount", "--also", "a=/x", "/m"});
  ASSERT_EQ(mount.verb, Verb::kMount) << mount.text;
  EXPECT_EQ(mount.path, "/m");
}

TEST(CommandLine, PrintsVersionAndHelp) {
  const Invocation version = parse({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_EQ(version.text, std::string("inductorfs ") + INDUCTORFS_VERSION + "\n");

  const Invocation help = parse({"mount", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const Option& option : mount_options()) {
    EXPECT_NE(help.text.find("--" + std::string(option.name)), std::string::npos) << option.name;
    EXPECT_NE(help.text.find(option.help.substr(0, 20)), std::string::npos) << option.name;
  }
}

TEST(CommandLine, HidesTheProbeFromHelp) {
  const Invocation help = parse({"--help"});
  EXPECT_EQ(help.text.find("gpu-probe"), std::string::npos);
  EXPECT_NE(help.text.find("fingerprint"), std::string::npos);
}

TEST(CommandLine, AnswersAWrongOneWithOneLineAndCodeTwo) {
  for (const Invocation& wrong :
       {parse({}), parse({"mount"}), parse({"status"}), parse({"paint", "/m"}),
        parse({"mount", "/m", "--colour", "red"}), parse({"sync", "/m", "--timeout", "x"}),
        parse({"sync", "/m", "--timeout", "-1"}), parse({"mount", "/m", "--threads", "many"}),
        parse({"mount", "/m", "--store-limit", "1.5G"}), parse({"mount", "/m", "--also", "x"}),
        parse({"status", "/m", "/n"}), parse({"fingerprint", "--families", "--compare", "f"}),
        parse({"mount", "/m", "--writers", "some"}), parse({"fingerprint", "--environment", "HOME=/x"})}) {
    EXPECT_EQ(wrong.verb, Verb::kPrint);
    EXPECT_EQ(wrong.exit_code, 2);
    EXPECT_EQ(wrong.text.find("inductorfs: usage: "), 0U) << wrong.text;
    EXPECT_EQ(wrong.text.find('\n'), wrong.text.size() - 1) << wrong.text;
  }
}

TEST(CommandLine, DoesNotRepeatAPassword) {
  const Invocation wrong = parse({"mount", "/m", "redis://:secret@h"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_EQ(wrong.text.find("secret"), std::string::npos) << wrong.text;
}

TEST(SettingsOf, TheCommandLineWinsOverTheFile) {
  const testing::TemporaryDirectory directory;
  const std::string file = directory / "c.toml";
  ASSERT_TRUE(
      write_file_atomically(AT_FDCWD, file, "threads = 4\nprefix = \"of-file\"\nstore = \"rel\"\nallow-other = true\n")
          .has_value());

  const Result<Settings> settings = settings_of(
      parse({"mount", "/m", "--config", file.c_str(), "--threads", "2", "--no-allow-other"}), kUser, kNoEnvironment);

  ASSERT_TRUE(settings.has_value()) << settings.error().what();
  EXPECT_EQ(settings->threads, 2U);
  EXPECT_EQ(settings->prefix, "of-file");
  EXPECT_EQ(settings->allow_other, std::optional<bool>(false));
  EXPECT_EQ(settings->store, directory.path() + "/rel");
}

TEST(SettingsOf, FactsComeFromTheConfigurationOfAMountToo) {
  const testing::TemporaryDirectory directory;
  const std::string file = directory / "c.toml";
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, file,
                                    "python = \"bin/python\"\nthreads = 4\n[environment]\nPTXAS_OPTIONS = \"-O1\"\n"
                                    "[families.fxgraph]\nshared = false\n")
                  .has_value());
  const Result<Settings> settings = facts_settings_of(parse({"fingerprint", "--config", file.c_str()}));
  ASSERT_TRUE(settings.has_value()) << settings.error().what();
  EXPECT_EQ(settings->python, directory / "bin/python");
  EXPECT_EQ(settings->environment.at("PTXAS_OPTIONS"), "-O1");
  ASSERT_EQ(settings->families.size(), 1U);
  EXPECT_EQ(settings->families.front().family, "fxgraph");
}

TEST(SettingsOf, ErrorsOfTheFileNameTheFile) {
  const testing::TemporaryDirectory directory;
  const std::string file = directory / "c.toml";
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, file, "threads = 0\n").has_value());

  const Result<Settings> settings =
      settings_of(parse({"mount", "/m", "--config", file.c_str()}), kUser, kNoEnvironment);

  ASSERT_FALSE(settings.has_value());
  EXPECT_EQ(settings.error().what().find("threads \"0\": " + file + ": "), 0U) << settings.error().what();
}

TEST(SettingsOf, MakesTheMountpointAbsoluteAndKeepsItsSpelling) {
  const Result<Settings> settings = settings_of(parse({"mount", "sub/../m/"}), kUser, kNoEnvironment);
  ASSERT_TRUE(settings.has_value());
  EXPECT_EQ(settings->mountpoint, absolute_path("m", working_directory()));
  EXPECT_EQ(settings->alias, settings->mountpoint);
}

TEST(HideSecrets, OverwritesThemInPlace) {
  std::string program = "inductorfs";
  std::string url = "redis://user:se@cret@host:1/2";
  std::string plain = "redis://host";
  std::string option = "--remote=rediss://:pw@h";
  char* argv[] = {program.data(), url.data(), plain.data(), option.data()};

  hide_secrets(4, argv);

  EXPECT_EQ(url, "redis://************@host:1/2");
  EXPECT_EQ(plain, "redis://host");
  EXPECT_EQ(option, "--remote=rediss://***@h");
}

}  // namespace
}  // namespace inductorfs::daemon
