// SPDX-License-Identifier: Apache-2.0
#include "cli/common/command_line.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <utility>

#include "inductorfs/cli/run.h"
#include "inductorfs/config/settings.h"

namespace inductorfs::cli {
namespace {

CommandLine parse(std::initializer_list<const char*> arguments) {
  std::vector<const char*> argv{"inductorfs"};
  argv.insert(argv.end(), arguments);
  return parse_command_line(static_cast<int>(argv.size()), argv.data());
}

/// The command that these words choose; empty after a usage error.
std::string chosen(std::initializer_list<const char*> arguments) {
  const CommandLine line = parse(arguments);
  EXPECT_TRUE(line.command) << line.text;
  return line.name;
}

TEST(CommandLine, KnowsEveryCommand) {
  EXPECT_EQ(chosen({"mount", "/m"}), "mount");
  EXPECT_EQ(chosen({"unmount", "/m"}), "unmount");
  EXPECT_EQ(chosen({"status", "/m"}), "status");
  EXPECT_EQ(chosen({"status"}), "status");
  EXPECT_EQ(chosen({"sync", "/m"}), "sync");
  EXPECT_EQ(chosen({"explain", "/m/x"}), "explain");
  EXPECT_EQ(chosen({"upgrade", "/m"}), "upgrade");
  EXPECT_EQ(chosen({"fingerprint"}), "fingerprint");
  EXPECT_EQ(chosen({"check", "--store", "/s"}), "check");
  EXPECT_EQ(chosen({"gpu-probe"}), "gpu-probe");
  EXPECT_EQ(chosen({"package-facts"}), "package-facts");
  EXPECT_EQ(chosen({"host-facts"}), "host-facts");
  EXPECT_EQ(chosen({"host-places"}), "host-places");
  EXPECT_EQ(chosen({"worker", "/m"}), "worker");
}

TEST(CommandLine, TakesTheFlagsOfEachCommand) {
  EXPECT_EQ(chosen({"mount", "/m", "--config", "c", "--remote", "redis://h", "--no-allow-other"}), "mount");
  EXPECT_EQ(chosen({"unmount", "/m", "--lazy"}), "unmount");
  EXPECT_EQ(chosen({"status", "--json", "/m"}), "status");
  EXPECT_EQ(chosen({"sync", "/m", "--timeout", "3", "--json"}), "sync");
  EXPECT_EQ(chosen({"explain", "/m/x", "--json"}), "explain");
  EXPECT_EQ(chosen({"upgrade", "--all", "--program", "p", "--json"}), "upgrade");
  EXPECT_EQ(chosen({"check", "--store", "/s", "--repair", "--json"}), "check");
  EXPECT_EQ(chosen({"fingerprint", "--fingerprint", "f", "--compare", "g", "--cache", "c", "--json"}), "fingerprint");
  EXPECT_EQ(chosen({"fingerprint", "--python", "/p", "--environment", "PTXAS_OPTIONS=-O1"}), "fingerprint");
  EXPECT_EQ(chosen({"fingerprint", "--families"}), "fingerprint");
}

TEST(CommandLine, SaysWhatItTakes) {
  const std::string long_why(600, 'x');
  const CommandLine why = parse({"freeze", "/m", "--why", long_why.c_str()});
  EXPECT_EQ(why.exit_code, kExitUsage);
  EXPECT_NE(why.text.find("--why has 600 bytes: give 512 at most"), std::string::npos) << why.text;
  EXPECT_EQ(chosen({"freeze", "/m", "--why", long_why.c_str() + 600 - 512}), "freeze");
  const CommandLine url = parse({"mount", "redis://h:1", "/m"});
  EXPECT_EQ(url.exit_code, kExitUsage);
  EXPECT_NE(url.text.find("it is a URL: give it with --remote"), std::string::npos) << url.text;
  EXPECT_EQ(chosen({"mount", "/tmp/a://b"}), "mount");
  const CommandLine job = parse({"why-miss", "/m", "--job", "x"});
  EXPECT_EQ(job.exit_code, kExitUsage);
  EXPECT_LT(job.text.size(), 200U) << job.text;
  EXPECT_EQ(parse({"why-miss", "--job", "0"}).exit_code, kExitUsage);
}

TEST(CommandLine, PrintsVersionAndHelp) {
  const CommandLine version = parse({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_EQ(version.text, std::string("inductorfs ") + INDUCTORFS_VERSION + "\n");

  const CommandLine help = parse({"mount", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const config::Option& option : config::mount_options()) {
    EXPECT_NE(help.text.find("--" + std::string(option.name)), std::string::npos) << option.name;
    EXPECT_NE(help.text.find(option.help.substr(0, 20)), std::string::npos) << option.name;
  }
}

TEST(CommandLine, ShowsNoCommandThatOnlyOursStart) {
  const CommandLine help = parse({"--help"});
  for (const char* internal : {"gpu-probe", "package-facts", "host-facts", "host-places", "worker"}) {
    EXPECT_EQ(help.text.find(internal), std::string::npos) << internal;
  }
  EXPECT_NE(help.text.find("fingerprint"), std::string::npos);
}

TEST(CommandLine, AnswersAWrongOneWithOneLineAndCodeTwo) {
  for (const CommandLine& wrong :
       {parse({}), parse({"mount"}), parse({"sync"}), parse({"paint", "/m"}), parse({"mount", "/m", "--colour", "red"}),
        parse({"sync", "/m", "--timeout", "x"}), parse({"sync", "/m", "--timeout", "-1"}),
        parse({"mount", "/m", "--threads", "many"}), parse({"mount", "/m", "--store-limit", "1.5"}),
        parse({"mount", "/m", "--also", "x"}), parse({"status", "/m", "/n"}),
        parse({"fingerprint", "--families", "--compare", "f"}), parse({"mount", "/m", "--writers", "some"}),
        parse({"fingerprint", "--environment", "HOME=/x"}), parse({"upgrade"}), parse({"upgrade", "/m", "--all"}),
        parse({"check"})}) {
    EXPECT_FALSE(wrong.command);
    EXPECT_EQ(wrong.exit_code, 2);
    EXPECT_EQ(wrong.text.find("inductorfs: usage: "), 0U) << wrong.text;
    EXPECT_EQ(wrong.text.find('\n'), wrong.text.size() - 1) << wrong.text;
  }
}

TEST(CommandLine, TakesAnEmptyPathForNoDirectory) {
  for (const auto& [wrong, name] :
       {std::pair{parse({"mount", ""}), "MOUNTPOINT"}, std::pair{parse({"unmount", "", "--lazy"}), "MOUNTPOINT"},
        std::pair{parse({"status", ""}), "PATH"}, std::pair{parse({"sync", ""}), "MOUNTPOINT"},
        std::pair{parse({"explain", ""}), "PATH"}, std::pair{parse({"check", "--store", ""}), "--store"},
        std::pair{parse({"check", "--store="}), "--store"}, std::pair{parse({"upgrade", ""}), "MOUNTPOINT"}}) {
    EXPECT_FALSE(wrong.command);
    EXPECT_EQ(wrong.exit_code, 2);
    EXPECT_EQ(wrong.text.find("inductorfs: usage: "), 0U) << wrong.text;
    EXPECT_NE(wrong.text.find(name), std::string::npos) << wrong.text;
  }
  EXPECT_NE(parse({"mount", ""}).text.find("MOUNTPOINT: it is empty: give a path"), std::string::npos)
      << parse({"mount", ""}).text;
}

TEST(CommandLine, DoesNotRepeatAPassword) {
  const CommandLine wrong = parse({"mount", "/m", "redis://:secret@h"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_EQ(wrong.text.find("secret"), std::string::npos) << wrong.text;
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

TEST(CommandLine, TellsAWrongWordInJsonToo) {
  const CommandLine plain = parse({"status", "--jsn"});
  EXPECT_EQ(plain.answer, "");
  for (const CommandLine& line : {parse({"status", "--json", "--jsn"}), parse({"statu", "--json"}),
                                  parse({"purge", "--json"}), parse({"--json"})}) {
    EXPECT_EQ(line.exit_code, 2);
    EXPECT_NE(line.answer.find("\"code\": \"invalid\""), std::string::npos) << line.answer;
    EXPECT_NE(line.answer.find("\"error\": \"usage: "), std::string::npos) << line.answer;
    EXPECT_TRUE(line.text.starts_with("inductorfs: usage: ")) << line.text;
  }
}

TEST(CommandLine, SaysWhyNobodyCollectsGarbage) {
  EXPECT_NE(parse({"gc"}).text.find("goes by itself, and inductorfs purge"), std::string::npos);
  EXPECT_NE(parse({"prune", "/m"}).text.find("inductorfs purge"), std::string::npos);
}

}  // namespace
}  // namespace inductorfs::cli
