// SPDX-License-Identifier: Apache-2.0
#include "secrets.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <string>

#include "inductorfs/base/fd.h"
#include "support/forked_examiner.h"
#include "support/temporary_directory.h"

namespace inductorfs::mount {
namespace {

constexpr Milliseconds kLong{20'000};

void write(const std::string& path, std::string_view text) {
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, path, text, 0600));
}

/// Of a mount whose options name files in `directory`; the mounter of it reads `files`.
class SecretsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    settings_.password_file = directory_ / "password";
    settings_.ca_file = settings_.cert_file = settings_.key_file = directory_ / "all";
    write(settings_.password_file, std::string("pass\xff\0word", 10));
    write(settings_.ca_file, "three in one");
  }
  testing::TemporaryDirectory directory_;
  config::Settings settings_;
};

TEST_F(SecretsTest, AreReadByTheMounter) {
  const testing::ForkedExaminer mounter({{Secrets::kTask, Secrets::task(Secrets::files_of(settings_))}});
  Secrets secrets(settings_, mounter.socket(), [] {});
  EXPECT_EQ(secrets.read(settings_.ca_file).error().code(), ErrorCode::kUnavailable);
  (void)secrets.renew(Deadline::after(kLong));
  EXPECT_EQ(secrets.read(settings_.password_file).value_or(""), std::string("pass\xff\0word", 10));
  EXPECT_EQ(secrets.read(settings_.ca_file).value_or(""), "three in one");
  EXPECT_FALSE(secrets.read("/etc/passwd"));
  write(settings_.ca_file, "renewed");
  EXPECT_EQ(secrets.read(settings_.ca_file).value_or(""), "three in one");
  (void)secrets.renew(Deadline::after(kLong));
  EXPECT_EQ(secrets.read(settings_.ca_file).value_or(""), "renewed");
}

TEST_F(SecretsTest, ThatCannotBeReadAnyMoreStayAsTheyWere) {
  const testing::ForkedExaminer mounter({{Secrets::kTask, Secrets::task(Secrets::files_of(settings_))}});
  Secrets secrets(settings_, mounter.socket(), [] {});
  (void)secrets.renew(Deadline::after(kLong));
  std::filesystem::remove(settings_.ca_file);
  write(settings_.password_file, "of anybody");
  ASSERT_EQ(::chmod(settings_.password_file.c_str(), 0666), 0);
  EXPECT_TRUE(secrets.renew(Deadline::after(kLong)));
  EXPECT_EQ(secrets.read(settings_.ca_file).value_or(""), "three in one");
  EXPECT_EQ(secrets.read(settings_.password_file).value_or(""), std::string("pass\xff\0word", 10));
}

/// Of four files one may lie on a disk that hangs.
TEST_F(SecretsTest, LeaveTimeForTheOthers) {
  settings_.cert_file = settings_.key_file = "";
  fingerprint::ExaminerTask hangs = Secrets::task(Secrets::files_of(settings_));
  hangs.answer = [read = hangs.answer](const fingerprint::ExaminerCall& call) {
    while (call.request == "ca") (void)::poll(nullptr, 0, -1);
    return read(call);
  };
  const testing::ForkedExaminer mounter({{Secrets::kTask, hangs}});
  Secrets secrets(settings_, mounter.socket(), [] {});
  EXPECT_FALSE(secrets.renew(Deadline::after(Milliseconds(2000))));
  EXPECT_EQ(secrets.read(settings_.ca_file).error().code(), ErrorCode::kTimedOut);
  EXPECT_TRUE(secrets.read(settings_.password_file));
}

TEST_F(SecretsTest, ThatNeverCouldBeReadSayWhy) {
  std::filesystem::remove(settings_.ca_file);
  ASSERT_EQ(::chmod(settings_.password_file.c_str(), 0666), 0);
  const testing::ForkedExaminer mounter({{Secrets::kTask, Secrets::task(Secrets::files_of(settings_))}});
  Secrets secrets(settings_, mounter.socket(), [] {});
  (void)secrets.renew(Deadline::after(kLong));
  EXPECT_EQ(secrets.read(settings_.ca_file).error().code(), ErrorCode::kNotFound);
  EXPECT_NE(secrets.read(settings_.password_file).error().what().find("chmod go-w"), std::string::npos);
}

TEST_F(SecretsTest, AreOfTheFilesThatTheMounterWasToldAlone) {
  const testing::ForkedExaminer mounter({{Secrets::kTask, Secrets::task({{"password", settings_.password_file}})}});
  Secrets secrets(settings_, mounter.socket(), [] {});
  (void)secrets.renew(Deadline::after(kLong));
  EXPECT_TRUE(secrets.read(settings_.password_file));
  EXPECT_EQ(secrets.read(settings_.ca_file).error().what(), "no such file of the mount");
  for (const std::string request : {"", "/etc/passwd", "../password", "password\n", settings_.password_file.c_str()}) {
    const auto answer = mounter.link()->ask(Secrets::kTask, request, Deadline::after(kLong));
    EXPECT_NE(answer.value_or("").find("no such file of the mount"), std::string::npos) << request;
  }
}

TEST_F(SecretsTest, OfAMounterThatLiesAreNone) {
  for (const char* answer : {"", "{}", "no JSON", "[]", "{\"error\":7}"}) {
    const testing::ForkedExaminer mounter({{Secrets::kTask, testing::says(answer)}});
    Secrets secrets(settings_, mounter.socket(), [] {});
    (void)secrets.renew(Deadline::after(kLong));
    EXPECT_FALSE(secrets.read(settings_.ca_file)) << answer;
  }
}

TEST_F(SecretsTest, AreNotWaitedForWhenTheMountEnds) {
  fingerprint::ExaminerTask hangs;
  hangs.answer = [](const fingerprint::ExaminerCall&) {
    while (true) (void)::poll(nullptr, 0, -1);
    return std::string();
  };
  const testing::ForkedExaminer mounter({{Secrets::kTask, hangs}});
  Secrets secrets(settings_, mounter.socket(), [] {});
  const Deadline deadline = Deadline::after(kLong);
  std::atomic<int> asked{0};
  EXPECT_FALSE(secrets.renew(deadline, [&asked] { return ++asked > 3; }));
  EXPECT_FALSE(deadline.passed());
  EXPECT_FALSE(secrets.read(settings_.ca_file));
}

}  // namespace
}  // namespace inductorfs::mount
