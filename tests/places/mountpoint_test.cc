// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/places/mountpoint.h"

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "support/lacks.h"
#include "support/temporary_directory.h"

namespace inductorfs::places {
namespace {

constexpr uid_t kNobody = 65534;

/// A process with the command line of a messenger of the mount at a path. Confined to one thread.
class Pretender {
 public:
  /// `user`: whose process it is. `path`: a shell script that says "ready" and waits.
  Pretender(const std::string& path, uid_t user) {
    std::array<int, 2> said{};
    std::array<int, 2> held{};
    EXPECT_EQ(::pipe2(said.data(), O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(held.data(), O_CLOEXEC), 0);
    Fd heard(said[0]);
    const Fd says(said[1]);
    const Fd waits(held[0]);
    held_ = Fd(held[1]);
    pid_ = ::fork();
    if (pid_ == 0) {
      const bool is_user = user == ::geteuid() || (::setgroups(0, nullptr) == 0 && ::setresuid(user, user, user) == 0);
      (void)::dup2(waits.get(), STDIN_FILENO);
      (void)::dup2(says.get(), STDOUT_FILENO);
      if (is_user) (void)::execl("/bin/sh", "inductorfs-messenger", path.c_str(), static_cast<char*>(nullptr));
      ::_exit(1);
    }
    char ready = 0;
    EXPECT_EQ(::read(heard.get(), &ready, 1), 1) << "it has the command line now";
  }
  Pretender(const Pretender&) = delete;
  Pretender& operator=(const Pretender&) = delete;
  ~Pretender() {
    (void)::kill(pid_, SIGKILL);
    (void)::waitpid(pid_, nullptr, 0);
  }

 private:
  Fd held_;
  pid_t pid_ = -1;
};

class MountProcesses : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) INDUCTORFS_LACKS("root, to be several users");
    ASSERT_EQ(::chmod(directory_.path().c_str(), 0755), 0);
    ASSERT_TRUE(write_file_atomically(AT_FDCWD, path_, "echo ready\nread line\n", 0644).has_value());
  }
  testing::TemporaryDirectory directory_;
  /// Nothing is mounted there, so that to end waits does nothing.
  std::string path_ = directory_ / "mount";
};

TEST_F(MountProcesses, AMessengerOfRootCounts) {
  const Pretender messenger(path_, 0);
  EXPECT_TRUE(end_waits_without_daemon(path_));
}

TEST_F(MountProcesses, WhatAnotherUserCallsAMessengerDoesNotCount) {
  const Pretender messenger(path_, kNobody);
  EXPECT_FALSE(end_waits_without_daemon(path_));
}

}  // namespace
}  // namespace inductorfs::places
