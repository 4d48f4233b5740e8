// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/places/mountpoint.h"

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "inductorfs/base/mount_table.h"
#include "inductorfs/fuse/session.h"
#include "support/emulator.h"
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
    mount_.mount_point = path_;
  }
  testing::TemporaryDirectory directory_;
  std::string path_ = directory_ / "mount";
  /// Nothing is mounted there, so that to end waits does nothing.
  MountEntry mount_;
};

TEST_F(MountProcesses, AMessengerOfRootCounts) {
  const Pretender messenger(path_, 0);
  EXPECT_TRUE(end_waits_without_daemon(mount_));
}

TEST_F(MountProcesses, WhatAnotherUserCallsAMessengerDoesNotCount) {
  const Pretender messenger(path_, kNobody);
  EXPECT_FALSE(end_waits_without_daemon(mount_));
}

TEST_F(MountProcesses, AnotherMountThatHasThePathByNowKeepsItsRequests) {
  INDUCTORFS_NEEDS_NO_EMULATOR("fsopen(2)");
  if (::access("/dev/fuse", R_OK | W_OK) != 0) INDUCTORFS_LACKS("/dev/fuse");
  const std::string dead = directory_ / "dead";
  const std::string other = directory_ / "other";
  // A script has to be at the path for a moment, so that its process has the path on its command line.
  ASSERT_TRUE(make_directories(dead).has_value());
  ASSERT_EQ(::rename(path_.c_str(), (dead + "/m").c_str()), 0);
  const Pretender messenger(dead + "/m", 0);
  ASSERT_EQ(::unlink((dead + "/m").c_str()), 0);
  std::vector<Fd> devices;  // held, but never served: each mount has a request that waits
  for (const std::string& around : {dead, other}) {
    ASSERT_TRUE(make_directories(around + "/m").has_value());
    fuse::MountOptions options;
    options.mountpoint = around + "/m";
    auto device = fuse::mount(options);
    ASSERT_TRUE(device) << device.error().to_string();
    devices.push_back(std::move(device->device));
  }
  const auto has_ended = [&](size_t place) {
    pollfd device{devices[place].get(), POLLIN, 0};
    return ::poll(&device, 1, 0) == 1 && (device.revents & POLLERR) != 0;
  };
  const std::vector<MountEntry> table = read_mount_table();
  const MountEntry meant = *find_mount_at(table, dead + "/m");
  ASSERT_EQ(::renameat2(AT_FDCWD, dead.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE), 0);

  EXPECT_TRUE(end_waits_without_daemon(meant));
  EXPECT_FALSE(has_ended(1)) << "it has the path now";
  EXPECT_FALSE(has_ended(0)) << "the path does not lead to it";

  ASSERT_EQ(::renameat2(AT_FDCWD, dead.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE), 0);
  EXPECT_TRUE(end_waits_without_daemon(meant));
  EXPECT_TRUE(has_ended(0));
  EXPECT_FALSE(has_ended(1));
  for (const std::string& around : {dead, other}) EXPECT_EQ(::umount2((around + "/m").c_str(), MNT_DETACH), 0);
}

TEST(OwnMount, IsTheOneThatWasMadeAndIsTakenAwayWhereItIsWhenAnotherHasItsPath) {
  INDUCTORFS_NEEDS_NO_EMULATOR("fsopen(2)");
  if (::access("/dev/fuse", R_OK | W_OK) != 0) INDUCTORFS_LACKS("/dev/fuse");
  const testing::TemporaryDirectory directory;
  const std::string own = directory / "d";
  const std::string other = directory / "e";
  std::vector<fuse::Mounted> mounts;  // held, but never served
  for (const std::string& around : {own, other}) {
    ASSERT_TRUE(make_directories(around + "/m").has_value());
    fuse::MountOptions options;
    options.mountpoint = around + "/m";
    auto mounted = fuse::mount(options);
    ASSERT_TRUE(mounted) << mounted.error().to_string();
    mounts.push_back(std::move(*mounted));
  }
  EXPECT_EQ(find_own_mount(own + "/m", mounts[0].id).value_or(BindId{}).mount, mounts[0].id);
  // Whoever owns the directories around it exchanges them as soon as it is there.
  ASSERT_EQ(::renameat2(AT_FDCWD, own.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE), 0);
  const auto found = find_own_mount(own + "/m", mounts[0].id);
  EXPECT_FALSE(found);
  const std::vector<MountEntry> table = read_mount_table();
  EXPECT_EQ(find_mount_by_id(table, mounts[0].id), nullptr) << "the new one is not left behind, dead";
  EXPECT_NE(find_mount_by_id(table, mounts[1].id), nullptr) << "the other one is somebody's";
  EXPECT_EQ(::umount2((own + "/m").c_str(), MNT_DETACH), 0);
}

TEST(OwnMount, IsUnmountedAndNoOtherOneAtItsPath) {
  if (::geteuid() != 0) INDUCTORFS_LACKS("root, to mount");
  const testing::TemporaryDirectory directory;
  const std::string own = directory / "d";
  const std::string other = directory / "e";
  for (const std::string& around : {own, other}) {
    ASSERT_TRUE(make_directories(around + "/m").has_value());
    ASSERT_EQ(::mount("mount", (around + "/m").c_str(), "tmpfs", 0, ""), 0);
  }
  std::vector<MountEntry> table = read_mount_table();
  const MountEntry* const entry = find_mount_at(table, own + "/m");
  ASSERT_NE(entry, nullptr);
  const BindId meant{entry->id, entry->device};
  ASSERT_EQ(::renameat2(AT_FDCWD, own.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE), 0);

  EXPECT_TRUE(unmount_if_there(own + "/m", meant, true).has_value());
  table = read_mount_table();
  EXPECT_NE(find_mount_at(table, own + "/m"), nullptr) << "the other one";
  EXPECT_NE(find_mount_at(table, other + "/m"), nullptr);

  EXPECT_TRUE(unmount_if_there(other + "/m", meant, false).has_value());
  table = read_mount_table();
  EXPECT_EQ(find_mount_at(table, other + "/m"), nullptr);
  EXPECT_EQ(::umount2((own + "/m").c_str(), MNT_DETACH), 0);
}

/// A mountpoint of this process with a mount whose daemon has gone.
class DeadMount : public ::testing::Test {
 protected:
  void SetUp() override {
    INDUCTORFS_NEEDS_NO_EMULATOR("fsopen(2)");
    if (::access("/dev/fuse", R_OK | W_OK) != 0) INDUCTORFS_LACKS("/dev/fuse");
    ASSERT_TRUE(make_directories(path_).has_value());
    ASSERT_EQ(::chmod(path_.c_str(), 01750), 0);
    mount_over({});
    ASSERT_TRUE(is_dead_mount(path_));
  }
  void TearDown() override {
    while (::umount2(path_.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0) {
    }
  }
  /// Nobody holds its device.
  fuse::Mounted mount_over(const Mountpoint& place) {
    fuse::MountOptions options;
    options.mountpoint = path_;
    options.directory = place.at.directory.get();
    options.dead = place.dead.get();
    options.may_hold_files = true;
    auto mounted = fuse::mount(options);
    EXPECT_TRUE(mounted) << mounted.error().to_string();
    return mounted ? fuse::Mounted{Fd(), mounted->id} : fuse::Mounted{};
  }
  std::ptrdiff_t layers() const {
    const std::vector<MountEntry> table = read_mount_table();
    return std::count_if(table.begin(), table.end(),
                         [&](const MountEntry& entry) { return entry.mount_point == path_; });
  }
  testing::TemporaryDirectory directory_;
  std::string path_ = directory_ / "m";
};

TEST_F(DeadMount, StaysUntilTheNewOneIsThere) {
  EXPECT_EQ(free_mountpoint(path_).value_or(true), false);
  EXPECT_EQ(layers(), 1);
  const auto ownership = ownership_of(path_);
  ASSERT_TRUE(ownership);
  EXPECT_EQ(ownership->mode, 01750U) << "of the directory below";
  auto place = open_mountpoint(path_, *ownership);
  ASSERT_TRUE(place) << place.error().to_string();
  EXPECT_TRUE(place->dead);
  EXPECT_FALSE(place->uncovered);
  const auto mounted = mount_over(*place);

  EXPECT_TRUE(find_own_mount(path_, mounted.id)) << "it shows, whether the kernel has exchanged them or put it on top";
  EXPECT_EQ(move_left_over(*place, path_), "");
  place = Mountpoint();
  EXPECT_TRUE(detach_dead_mounts(path_));
  EXPECT_EQ(layers(), 0);
  EXPECT_FALSE(detach_dead_mounts(path_));
}

TEST_F(DeadMount, DoesNotHinderAMountOverADirectoryWithFiles) {
  const Result<Covered> below = open_covered(path_);  // as a container does that does not have the mount
  ASSERT_TRUE(below);
  ASSERT_EQ(::mkdirat(below->directory.get(), "written", 0755), 0);
  const auto ownership = ownership_of(path_);
  ASSERT_TRUE(ownership);
  const auto place = open_mountpoint(path_, *ownership);
  ASSERT_TRUE(place) << place.error().to_string();
  (void)mount_over(*place);

  const std::string told = move_left_over(*place, path_);
  const size_t aside = told.find(path_ + ".left-over-");
  ASSERT_NE(aside, std::string::npos) << told;
  const std::string kept = told.substr(aside, told.find(' ', aside) - aside) + "/written";
  EXPECT_EQ(::access(kept.c_str(), F_OK), 0) << told;
  EXPECT_TRUE(detach_dead_mounts(path_));
  EXPECT_EQ(::rmdir(path_.c_str()), 0) << "nothing is left in it";
}

TEST_F(DeadMount, OfWhichSeveralLieOverEachOtherLosesAllButOne) {
  for (int layer = 0; layer < 3; ++layer) {
    ASSERT_EQ(::mount(path_.c_str(), path_.c_str(), nullptr, MS_BIND, nullptr), 0);
  }
  EXPECT_EQ(free_mountpoint(path_).value_or(true), false);
  EXPECT_EQ(layers(), 1);
  EXPECT_TRUE(is_dead_mount(path_)) << "the directory never shows";
}

}  // namespace
}  // namespace inductorfs::places
