// SPDX-License-Identifier: Apache-2.0
#include "mount/processes/secrets.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/message.h"
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
  const testing::ForkedExaminer mounter(Secrets::tasks(Secrets::files_of(settings_)));
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
  const testing::ForkedExaminer mounter(Secrets::tasks(Secrets::files_of(settings_)));
  Secrets secrets(settings_, mounter.socket(), [] {});
  (void)secrets.renew(Deadline::after(kLong));
  std::filesystem::remove(settings_.ca_file);
  write(settings_.password_file, "of anybody");
  ASSERT_EQ(::chmod(settings_.password_file.c_str(), 0666), 0);
  EXPECT_TRUE(secrets.renew(Deadline::after(kLong)));
  EXPECT_EQ(secrets.read(settings_.ca_file).value_or(""), "three in one");
  EXPECT_EQ(secrets.read(settings_.password_file).value_or(""), std::string("pass\xff\0word", 10));
}

/// As while somebody writes them in place.
TEST_F(SecretsTest, ThatAreEmptyByNowStayAsTheyWere) {
  const testing::ForkedExaminer mounter(Secrets::tasks(Secrets::files_of(settings_)));
  Secrets secrets(settings_, mounter.socket(), [] {});
  EXPECT_TRUE(secrets.renew(Deadline::after(kLong)));
  write(settings_.ca_file, "");
  EXPECT_TRUE(secrets.renew(Deadline::after(kLong)));
  EXPECT_EQ(secrets.read(settings_.ca_file).value_or(""), "three in one");
}

/// Of four files one may lie on a disk that hangs.
TEST_F(SecretsTest, LeaveTimeForTheOthers) {
  settings_.cert_file = settings_.key_file = "";
  auto tasks = Secrets::tasks(Secrets::files_of(settings_));
  tasks.at("secret.ca").answer = [](const fingerprint::ExaminerCall&) {
    while (true) (void)::poll(nullptr, 0, -1);
    return std::string();
  };
  const testing::ForkedExaminer mounter(std::move(tasks));
  Secrets secrets(settings_, mounter.socket(), [] {});
  EXPECT_FALSE(secrets.renew(Deadline::after(Milliseconds(5000))));
  EXPECT_EQ(secrets.read(settings_.ca_file).error().code(), ErrorCode::kUnavailable);
  EXPECT_TRUE(secrets.read(settings_.password_file));
  write(settings_.password_file, "renewed");
  EXPECT_FALSE(secrets.renew(Deadline::after(Milliseconds(3000))));
  EXPECT_EQ(secrets.read(settings_.password_file).value_or(""), "renewed");
}

TEST_F(SecretsTest, ThatNeverCouldBeReadSayWhy) {
  std::filesystem::remove(settings_.ca_file);
  ASSERT_EQ(::chmod(settings_.password_file.c_str(), 0666), 0);
  const testing::ForkedExaminer mounter(Secrets::tasks(Secrets::files_of(settings_)));
  Secrets secrets(settings_, mounter.socket(), [] {});
  (void)secrets.renew(Deadline::after(kLong));
  EXPECT_EQ(secrets.read(settings_.ca_file).error().code(), ErrorCode::kNotFound);
  EXPECT_NE(secrets.read(settings_.password_file).error().what().find("chmod go-w"), std::string::npos);
}

TEST_F(SecretsTest, AreOfTheFilesThatTheMounterWasToldAlone) {
  const testing::ForkedExaminer mounter(Secrets::tasks({{"password", settings_.password_file}}));
  Secrets secrets(settings_, mounter.socket(), [] {});
  (void)secrets.renew(Deadline::after(Milliseconds(5000)));
  EXPECT_TRUE(secrets.read(settings_.password_file));
  EXPECT_FALSE(secrets.read(settings_.ca_file));
  for (const char* task : {"", "secret", "secret.", "secret.ca", "secret./etc/passwd", "secret.password.", "mount"}) {
    const auto answer = mounter.link()->ask(task, settings_.ca_file, Deadline::after(kLong));
    EXPECT_EQ(answer.error().code(), ErrorCode::kNotFound) << task;
  }
}

TEST_F(SecretsTest, OfAMounterThatLiesAreNone) {
  for (const char* message : {"", "{}", "no JSON", "[]", "{\"error\":7}"}) {
    auto tasks = Secrets::tasks(Secrets::files_of(settings_));
    for (auto& [name, task] : tasks) {
      task.answer = [message](const fingerprint::ExaminerCall& call) {
        (void)send_message(call.descriptor, message, {});
        return std::string("more");
      };
    }
    const testing::ForkedExaminer mounter(std::move(tasks));
    Secrets secrets(settings_, mounter.socket(), [] {});
    EXPECT_FALSE(secrets.renew(Deadline::after(Milliseconds(300)))) << message;
    EXPECT_FALSE(secrets.read(settings_.ca_file)) << message;
  }
}

/// Another one is started in its place.
TEST_F(SecretsTest, OfAMounterThatStandsStillAreAskedOfTheNextOne) {
  const testing::ForkedExaminer mounter(Secrets::tasks(Secrets::files_of(settings_)));
  ASSERT_EQ(::kill(mounter.pid(), SIGSTOP), 0);
  std::atomic<int> told{0};
  Secrets secrets(settings_, mounter.socket(), [&] {
    ++told;
    (void)::kill(mounter.pid(), SIGCONT);
  });
  EXPECT_TRUE(secrets.renew(Deadline::after(kLong)));
  EXPECT_GE(told, 1);
}

TEST_F(SecretsTest, AreNotWaitedForWhenTheMountEnds) {
  auto tasks = Secrets::tasks(Secrets::files_of(settings_));
  for (auto& [name, task] : tasks) {
    task.answer = [](const fingerprint::ExaminerCall&) {
      while (true) (void)::poll(nullptr, 0, -1);
      return std::string();
    };
  }
  const testing::ForkedExaminer mounter(std::move(tasks));
  Secrets secrets(settings_, mounter.socket(), [] {});
  const Deadline deadline = Deadline::after(kLong);
  std::atomic<int> asked{0};
  EXPECT_FALSE(secrets.renew(deadline, [&asked] { return ++asked > 3; }));
  EXPECT_FALSE(deadline.passed());
  EXPECT_FALSE(secrets.read(settings_.ca_file));
}

}  // namespace
}  // namespace inductorfs::mount
