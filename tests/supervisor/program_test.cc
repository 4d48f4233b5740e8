// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/supervisor/program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/message.h"
#include "support/lacks.h"
#include "support/temporary_directory.h"

namespace inductorfs::supervisor {
namespace {

constexpr uid_t kSomebody = 12345;

class Program : public ::testing::Test {
 protected:
  Program() {
    EXPECT_EQ(::mkdir((directory_ / "bin").c_str(), 0755), 0);
    std::ofstream(path_) << "a program";
    EXPECT_EQ(::chmod(path_.c_str(), 0755), 0);
  }
  [[nodiscard]] bool is_own() const {
    const Fd program(::open(path_.c_str(), O_PATH | O_CLOEXEC));
    return static_cast<bool>(open_own_program(program.get()));
  }
  testing::TemporaryDirectory directory_;
  std::string path_ = directory_ / "bin/inductorfs-new";
};

TEST_F(Program, IsThisUsersInPlacesOfThisUser) { EXPECT_TRUE(is_own()); }

TEST_F(Program, IsNoneThatOthersMayWrite) {
  for (const mode_t mode : {0775, 0757}) {
    ASSERT_EQ(::chmod(path_.c_str(), mode), 0);
    EXPECT_FALSE(is_own()) << std::oct << mode;
  }
}

TEST_F(Program, IsNoneThatOthersMayReplace) {
  ASSERT_EQ(::chmod((directory_ / "bin").c_str(), 0777), 0);
  EXPECT_FALSE(is_own());
  ASSERT_EQ(::chmod((directory_ / "bin").c_str(), 01777), 0);
  EXPECT_TRUE(is_own()) << "as in /tmp";
}

TEST_F(Program, IsNoneThatAHardLinkMayHaveBrought) {
  ASSERT_EQ(::chmod((directory_ / "bin").c_str(), 01777), 0);
  ASSERT_EQ(::link(path_.c_str(), (directory_ / "another name").c_str()), 0);
  EXPECT_FALSE(is_own());
  ASSERT_EQ(::chmod((directory_ / "bin").c_str(), 0755), 0);
  ASSERT_EQ(::unlink((directory_ / "another name").c_str()), 0);
  EXPECT_TRUE(is_own());
}

TEST_F(Program, IsNoneOfAnother) {
  if (::geteuid() != 0) INDUCTORFS_LACKS("root");
  ASSERT_EQ(::chown(path_.c_str(), kSomebody, 0), 0);
  EXPECT_FALSE(is_own());
}

TEST_F(Program, IsNoneInAPlaceOfAnother) {
  if (::geteuid() != 0) INDUCTORFS_LACKS("root");
  ASSERT_EQ(::chown((directory_ / "bin").c_str(), kSomebody, 0), 0);
  EXPECT_FALSE(is_own());
}

TEST_F(Program, IsNoOtherKindOfFile) {
  const Fd folder(::open((directory_ / "bin").c_str(), O_PATH | O_CLOEXEC));
  EXPECT_FALSE(open_own_program(folder.get()));
  EXPECT_FALSE(open_own_program(-1));
}

TEST_F(Program, IsNoneOfAnotherName) {
  const Fd shell(::open("/bin/sh", O_PATH | O_CLOEXEC));
  ASSERT_TRUE(shell);
  EXPECT_FALSE(open_own_program(shell.get())) << "it would be told what a worker says";
}

TEST_F(Program, IsTheOneThatThePathLeadsToHere) {
  const Fd first(::open(path_.c_str(), O_PATH | O_CLOEXEC));
  ASSERT_EQ(::rename(path_.c_str(), (directory_ / "inductorfs-old").c_str()), 0);
  std::ofstream(path_) << "another program";
  ASSERT_EQ(::chmod(path_.c_str(), 0755), 0);
  EXPECT_TRUE(open_own_program(first.get())) << "where it is by now";
  ASSERT_EQ(::unlink((directory_ / "inductorfs-old").c_str()), 0);
  EXPECT_FALSE(open_own_program(first.get())) << "no path leads there";
}

/// A worker may have shown its descriptor's path something else, in a mount namespace of its own.
TEST_F(Program, IsNoneOfAnotherMountNamespace) {
  if (::geteuid() != 0) INDUCTORFS_LACKS("root");
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
  const Fd here(ends[0]);
  Fd there(ends[1]);
  const std::string other = directory_ / "other";
  ASSERT_EQ(::mkdir(other.c_str(), 0755), 0);
  std::ofstream(other + "/inductorfs-new") << "another program";
  ASSERT_EQ(::chmod((other + "/inductorfs-new").c_str(), 0755), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    (void)::close(here.get());
    const bool shown = ::unshare(CLONE_NEWNS) == 0 &&
                       ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                       ::mount(other.c_str(), (directory_ / "bin").c_str(), nullptr, MS_BIND, nullptr) == 0;
    const int program = shown ? ::open(path_.c_str(), O_PATH | O_CLOEXEC) : -1;
    char byte = 0;
    if (!shown || !send_message(there.get(), "x", {&program, 1}, 0)) ::_exit(2);
    ::_exit(::read(there.get(), &byte, 1) == 1 ? 0 : 1);
  }
  there.reset();
  std::string room(8, '\0');
  Fd program;
  ASSERT_GT(receive_message(here.get(), room, {&program, 1}, 0).size, 0);
  ASSERT_TRUE(program);
  EXPECT_FALSE(open_own_program(program.get()));
  ASSERT_EQ(::write(here.get(), "x", 1), 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
}

}  // namespace
}  // namespace inductorfs::supervisor
