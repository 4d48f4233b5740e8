// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <thread>
#include <vector>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/log_lines.h"
#include "support/temporary_directory.h"

namespace inductorfs::log {
namespace {

using inductorfs::testing::TemporaryDirectory;

/// Lines of a log file, without their time. The log goes back to standard error at the end of each test.
class Log : public ::testing::Test {
 protected:
  void open_file(Level lowest) { ASSERT_TRUE(open(file_, lowest)); }
  void TearDown() override { ASSERT_TRUE(open("", Level::kWarning)); }
  [[nodiscard]] std::string text() const { return read_file(AT_FDCWD, file_, 1 << 20).value(); }
  [[nodiscard]] std::string untimed() const {
    return std::regex_replace(text(), std::regex("(^|\n)[0-9-]{10}T[0-9:]{8}\\.[0-9]{3}Z "), "$1");
  }

  TemporaryDirectory directory_;
  std::string file_ = directory_ / "daemon.log";
};

TEST_F(Log, LineIsTimeLevelEventAndFields) {
  open_file(Level::kInfo);
  info("mounted", {{"path", "/mnt"}, {"entries", 12U}, {"offset", -3}, {"ok", true}, {"ratio", 0.5}});
  EXPECT_TRUE(std::regex_match(
      text(), std::regex("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\\.[0-9]{3}Z info mounted path=/mnt entries=12 "
                         "offset=-3 ok=true ratio=0\\.5\n")))
      << text();
}

TEST_F(Log, ValuesAreQuotedWhenTheyMustBe) {
  open_file(Level::kInfo);
  info("event", {{"a", "two words"}, {"b", ""}, {"c", "k=v"}, {"d", "say \"hi\"\n\x01"}, {"e", "plain/ü"}});
  EXPECT_EQ(untimed(), "info event a=\"two words\" b=\"\" c=\"k=v\" d=\"say \\\"hi\\\"\\n\\u0001\" e=plain/ü\n");
}

TEST_F(Log, GoesToAFileThatSomebodyElseHasOpened) {
  Fd file(::open(file_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  ASSERT_TRUE(file);
  // It is begun anew when it is full, by whoever may not open it.
  ASSERT_EQ(::ftruncate(file.get(), (16 << 20) - 20), 0);
  ASSERT_EQ(::unlink(file_.c_str()), 0);
  const Fd seen(::open(("/proc/self/fd/" + std::to_string(file.get())).c_str(), O_RDONLY | O_CLOEXEC));
  open_given(std::move(file), Level::kInfo);
  debug("nothing");
  info("first");
  warning("second");
  std::string text(200, '\0');
  text.resize(static_cast<size_t>(std::max<ssize_t>(::pread(seen.get(), text.data(), text.size(), 0), 0)));
  EXPECT_TRUE(std::regex_match(text, std::regex("[^ ]+Z info first\n[^ ]+Z warning second\n"))) << text;
}

TEST_F(Log, OneEventIsOneLineWhateverIsInIt) {
  open_file(Level::kInfo);
  info("event", {{"value", "first\nsecond\r\n2026-01-01T00:00:00.000Z error forged"}});
  const std::string all = text();
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 1);
  EXPECT_EQ(std::count(all.begin(), all.end(), '\r'), 0);
}

TEST_F(Log, PercentAndBracesAreNoFormat) {
  open_file(Level::kInfo);
  info("event", {{"value", "{}{0}%s%v"}});
  EXPECT_EQ(untimed(), "info event value={}{0}%s%v\n");
}

TEST_F(Log, LowerLevelsAreLeftOut) {
  open_file(Level::kWarning);
  debug("a");
  info("b");
  warning("c");
  error("d");
  EXPECT_EQ(untimed(), "warning c\nerror d\n");
}

TEST_F(Log, NoFileOfItIsWiderThan0640) {
  const auto mode_of = [](const std::string& path) {
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0 ? status.st_mode & 07777 : 0;
  };
  const auto make = [](const std::string& path, mode_t mode) {
    const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, mode));
    ASSERT_TRUE(file);
    ASSERT_EQ(::fchmod(file.get(), mode), 0);
  };
  const mode_t before = ::umask(0);
  make(directory_ / "daemon.3.log", 0666);  // of an earlier release
  open_file(Level::kInfo);
  EXPECT_EQ(mode_of(file_), 0640U);
  EXPECT_EQ(mode_of(directory_ / "daemon.3.log"), 0640U);
  constexpr size_t kLine = 4000;
  for (size_t written = 0; written < (17U << 20); written += kLine) info("event", {{"value", std::string(kLine, 'x')}});
  EXPECT_EQ(mode_of(file_), 0640U) << "the file that took the place of the full one";
  EXPECT_EQ(mode_of(directory_ / "daemon.1.log"), 0640U);
  make(file_, 0600);
  open_file(Level::kInfo);
  EXPECT_EQ(mode_of(file_), 0600U) << "a narrower one stays so";
  (void)::umask(before);
}

TEST_F(Log, VeryLongValuesAreCut) {
  open_file(Level::kInfo);
  info("event", {{"value", std::string(1 << 20, 'x')}});
  EXPECT_LT(text().size(), 8192U);
  EXPECT_NE(text().find("xxx..."), std::string::npos);
}

TEST_F(Log, LimitedEventsSayHowManyWereHeldBack) {
  open_file(Level::kInfo);
  // The process remembers each name: with --gtest_repeat the test needs other names in each round.
  static int round = 0;
  ++round;
  const std::string repeated = "log_test.repeated_" + std::to_string(round);
  const std::string other = "log_test.other_" + std::to_string(round);
  write_limited(Level::kInfo, repeated, {{"n", 1}}, 3600);
  for (int i = 0; i < 4; ++i) write_limited(Level::kInfo, repeated, {{"n", 2}}, 3600);
  write_limited(Level::kInfo, other, {}, 3600);
  write_limited(Level::kInfo, repeated, {{"n", 3}}, 0);
  EXPECT_EQ(untimed(), "info " + repeated + " n=1\ninfo " + other + "\ninfo " + repeated + " n=3 suppressed=4\n");
}

TEST_F(Log, ThreadsDoNotMixTheirLines) {
  open_file(Level::kInfo);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([] {
        for (int i = 0; i < 200; ++i) info("event", {{"value", "0123456789"}});
      });
    }
  }
  std::string expected;
  for (int i = 0; i < 800; ++i) expected += "info event value=0123456789\n";
  EXPECT_EQ(untimed(), expected);
}

TEST_F(Log, FileThatCannotBeMadeIsAnErrorWithItsRemedy) {
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, directory_ / "file", ""));
  const auto opened = open(directory_ / "file/daemon.log", Level::kInfo);
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().what().find("writable"), std::string::npos) << opened.error().what();
}

TEST(Level, TextRoundTrips) {
  EXPECT_EQ(level_from_string("debug").value(), Level::kDebug);
  EXPECT_EQ(level_from_string("error").value(), Level::kError);
  EXPECT_EQ(level_from_string("Loud").error().code(), ErrorCode::kInvalid);
}

TEST(RedactUrl, HidesUserAndPassword) {
  EXPECT_EQ(redact_url("redis://user:secret@host:6379/0"), "redis://***@host:6379/0");
  EXPECT_EQ(redact_url("rediss://:secret@host"), "rediss://***@host");
  EXPECT_EQ(redact_url("user:secret@host"), "***@host");
}

TEST(RedactUrl, OddPasswordsDoNotLeak) {
  EXPECT_EQ(redact_url("redis://:se/cr@et@host/0"), "redis://***@host/0");
  EXPECT_EQ(redact_url("redis://:se?cr#et@host"), "redis://***@host");
  EXPECT_EQ(redact_url("redis://host/0?password=secret&db=1"), "redis://host/0?password=***&db=1");
  EXPECT_EQ(redact_url("redis://h?password=a&password=b"), "redis://h?password=***&password=***");
}

TEST(RedactUrl, LeavesUrlsWithoutSecretsAlone) {
  EXPECT_EQ(redact_url("redis://host:6379/0"), "redis://host:6379/0");
  EXPECT_EQ(redact_url("unix:///run/redis.sock"), "unix:///run/redis.sock");
  EXPECT_EQ(redact_url(""), "");
}

}  // namespace
}  // namespace inductorfs::log
