// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/mount/worker_tree.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <functional>

#include "inductorfs/base/host_files.h"
#include "inductorfs/base/mount_table.h"
#include "inductorfs/mount/worker_user.h"
#include "support/lacks.h"
#include "support/temporary_directory.h"

namespace inductorfs::mount {
namespace {

constexpr config::WorkerUser kUser{.uid = 60957, .gid = 60957, .groups = {}};

class WorkerTree : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) INDUCTORFS_LACKS("root");
    ASSERT_EQ(::chmod(directory_.path().c_str(), 0755), 0);
    std::ofstream(directory_ / "outside") << "root's";
    settings_.store = directory_ / "store";
    settings_.worker = kUser;
    ASSERT_TRUE(give_store(settings_.store, kUser));
    std::ofstream(settings_.store + "/inside") << "the store's";
    ASSERT_EQ(::symlink("inside", (settings_.store + "/link").c_str()), 0);
    auto tree = make_tree(settings_);
    if (!tree) INDUCTORFS_LACKS("a tree: " + tree.error().what());
    tree_ = std::move(*tree);
  }
  /// Returns what `act` returns in a child that lives in the tree, of one byte.
  [[nodiscard]] int in_tree(const std::function<int()>& act) const {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(::setns(tree_.get(), CLONE_NEWNS) == 0 ? act() : 255);
    int status = 0;
    return pid > 0 && ::waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 255;
  }
  /// The error of opening a path in the tree.
  [[nodiscard]] int error_of(const std::string& path, int flags = O_RDONLY) const {
    return in_tree([&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0600) < 0 ? errno : 0; });
  }
  [[nodiscard]] unsigned long flags_of(const std::string& path) const {
    unsigned long flags = 0;
    const auto has = [&](unsigned long flag) {
      return in_tree([&] {
        struct statvfs found {};
        return ::statvfs(path.c_str(), &found) == 0 && (found.f_flag & flag) != 0 ? 1 : 0;
      });
    };
    for (const unsigned long flag : {ST_RDONLY, ST_NOSUID, ST_NODEV, ST_NOEXEC}) flags |= has(flag) == 1 ? flag : 0;
    return flags;
  }
  testing::TemporaryDirectory directory_;
  config::Settings settings_;
  Fd tree_;
};

TEST_F(WorkerTree, HasTheStoreAndWhatAProgramNeeds) {
  EXPECT_EQ(error_of(settings_.store + "/inside", O_RDWR), 0);
  EXPECT_EQ(error_of("/etc/passwd"), 0);
  EXPECT_EQ(error_of("/dev/null", O_RDWR), 0);
  EXPECT_EQ(error_of("/proc/self/stat"), 0);
  const auto here = cpu_info(1U << 26U);
  ASSERT_TRUE(here);
  const size_t count = static_cast<size_t>(std::ranges::count(*here, '\n'));  // clocks of CPUs change
  const auto reads_cpus = [count] {
    const auto there = cpu_info(1U << 26U);
    return there && static_cast<size_t>(std::ranges::count(*there, '\n')) == count ? 0 : 1;
  };
  EXPECT_EQ(in_tree(reads_cpus), 0) << "what torch starts with is found out of it";
  const auto reads_boot = [] { return boot_id().size() > 8 ? 0 : 1; };
  EXPECT_EQ(in_tree(reads_boot), 0);
  EXPECT_EQ(in_tree([] { return ::access("/usr/lib", X_OK) == 0 ? 0 : 1; }), 0);
}

TEST_F(WorkerTree, HasNothingElse) {
  for (const std::string& path :
       {directory_ / "outside", std::string("/root"), std::string("/home"), std::string("/bin"),
        std::string("/usr/bin"), std::string("/sys"), std::string("/run/systemd/private"), std::string("/dev/mem"),
        std::string("/dev/fuse"), std::string("/proc/kcore"), std::string("/proc/sys/kernel/core_pattern")}) {
    if (::access(path.c_str(), F_OK) != 0) continue;
    EXPECT_EQ(error_of(path), ENOENT) << path;
  }
  EXPECT_EQ(error_of(settings_.store + "/../outside"), ENOENT);
  EXPECT_EQ(error_of(settings_.store + "/../../../../../../../" + (directory_ / "outside")), ENOENT);
  // Not even root writes there.
  for (const char* path : {"/fresh", "/etc/fresh", "/usr/lib/fresh", "/tmp/fresh"}) {
    const int error = error_of(path, O_WRONLY | O_CREAT);
    EXPECT_TRUE(error == EROFS || error == ENOENT) << path << ": " << error;
  }
}

TEST_F(WorkerTree, TakesRightsFromWhatItShows) {
  EXPECT_EQ(flags_of(settings_.store), ST_NOSUID | ST_NODEV | ST_NOEXEC);
  EXPECT_EQ(flags_of("/etc"), ST_RDONLY | ST_NOSUID | ST_NODEV | ST_NOEXEC);
  EXPECT_EQ(flags_of("/usr/lib"), ST_RDONLY | ST_NOSUID | ST_NODEV);
  EXPECT_EQ(flags_of("/proc"), ST_RDONLY | ST_NOSUID | ST_NODEV | ST_NOEXEC);
  EXPECT_EQ(flags_of("/"), ST_RDONLY | ST_NOSUID | ST_NODEV | ST_NOEXEC);
}

TEST_F(WorkerTree, FollowsNoLinkOfTheStoreWhereTheKernelCan) {
  mount_attr attributes{};
  attributes.attr_set = 0x00200000;  // MOUNT_ATTR_NOSYMFOLLOW
  if (::mount_setattr(-1, "", AT_EMPTY_PATH, &attributes, sizeof attributes) == 0 || errno != EBADF) {
    INDUCTORFS_LACKS("a kernel with nosymfollow (Linux 5.14)");
  }
  EXPECT_EQ(error_of(settings_.store + "/link"), ELOOP);
}

TEST_F(WorkerTree, KnowsWhereTheStoreIsOnItsDisk) {
  EXPECT_TRUE(settings_.store.ends_with(settings_.store_root)) << settings_.store_root;
  EXPECT_FALSE(settings_.store_root.empty());
}

TEST_F(WorkerTree, LeavesTheHostAsItIs) {
  for (const MountEntry& entry : read_mount_table())
    EXPECT_FALSE(entry.source.starts_with("inductorfs-tree")) << entry.source;
  EXPECT_EQ(::access("/usr/bin", X_OK), 0);
  struct stat inside {};
  ASSERT_EQ(::stat((settings_.store + "/link").c_str(), &inside), 0) << "links are followed here";
}

TEST_F(WorkerTree, IsNoneWhereTheStoreIsNot) {
  settings_.store = directory_ / "not there";
  Fd tree;
  choose_worker_tree(settings_, tree);
  EXPECT_FALSE(tree);
  EXPECT_NE(settings_.no_worker_tree.find("not there"), std::string::npos) << settings_.no_worker_tree;
}

}  // namespace
}  // namespace inductorfs::mount
