// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/places/sweep.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "inductorfs/control/control.h"
#include "inductorfs/control/runtime_directory.h"
#include "inductorfs/control/socket.h"
#include "inductorfs/places/also.h"
#include "inductorfs/places/own_mounts.h"
#include "support/temporary_directory.h"

namespace inductorfs::places {
namespace {

class RuntimeFiles : public ::testing::Test {
 protected:
  static bool exists(const std::string& path) {
    struct stat found {};
    return ::lstat(path.c_str(), &found) == 0;
  }
  void sweep() { sweep_runtime_directory(directory_.path(), true); }
  /// Of a daemon that was killed: nobody unlinks it.
  std::string dead_socket(const std::string& name) {
    std::string path = directory_ / name;
    EXPECT_TRUE(control::listen_at(path, 1).has_value());
    return path;
  }
  static void make_old(const std::string& path) {
    const timespec times[2] = {{1000, 0}, {1000, 0}};
    EXPECT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW), 0);
  }
  testing::TemporaryDirectory directory_;
};

TEST_F(RuntimeFiles, OfDeadDaemonsGo) {
  const std::string dead = dead_socket("a.sock");
  ASSERT_EQ(::symlink(dead.c_str(), (directory_ / "b.sock").c_str()), 0);
  sweep();
  EXPECT_FALSE(exists(dead));
  EXPECT_FALSE(exists(directory_ / "b.sock"));
}

TEST_F(RuntimeFiles, OfLivingDaemonsStay) {
  const std::string path = directory_ / "a.sock";
  const Result<Fd> living = control::listen_at(path, 1);
  ASSERT_TRUE(living.has_value());
  ASSERT_EQ(::symlink(path.c_str(), (directory_ / "b.sock").c_str()), 0);
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, directory_ / "a.also", "").has_value());
  sweep();
  EXPECT_TRUE(exists(path));
  EXPECT_TRUE(exists(directory_ / "b.sock"));
  EXPECT_TRUE(exists(directory_ / "a.also"));
}

TEST_F(RuntimeFiles, OfADaemonWithAFullBacklogStay) {
  const std::string path = directory_ / "a.sock";
  const Result<Fd> living = control::listen_at(path, 0);
  ASSERT_TRUE(living.has_value());
  std::vector<Fd> waiting;
  while (true) {
    Result<Fd> one = control::connect_to(path);
    if (!one) {
      EXPECT_EQ(one.error().code(), ErrorCode::kBusy);
      break;
    }
    waiting.push_back(std::move(*one));
    ASSERT_LT(waiting.size(), 1000U);
  }
  EXPECT_TRUE(control::is_listening(path));
  sweep();
  EXPECT_TRUE(exists(path));
}

TEST_F(RuntimeFiles, OfADaemonThatStartsStayForAWhile) {
  const std::string fresh = dead_socket("17.sock");
  ASSERT_EQ(::rename(fresh.c_str(), (directory_ / "17.new").c_str()), 0);
  sweep();
  EXPECT_TRUE(exists(directory_ / "17.new"));
  make_old(directory_ / "17.new");
  sweep();
  EXPECT_FALSE(exists(directory_ / "17.new"));
}

TEST_F(RuntimeFiles, OfOthersAreLeftAlone) {
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, directory_ / "notes", "text").has_value());
  ASSERT_EQ(::symlink("/nowhere", (directory_ / "link").c_str()), 0);
  sweep();
  EXPECT_TRUE(exists(directory_ / "notes"));
  EXPECT_TRUE(exists(directory_ / "link"));
}

TEST_F(RuntimeFiles, BehindALinkAreNotSwept) {
  const testing::TemporaryDirectory elsewhere;
  const std::string file = elsewhere / "work.tmp";
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, file, "text").has_value());
  make_old(file);
  ASSERT_EQ(::symlink(elsewhere.path().c_str(), (directory_ / "link").c_str()), 0);
  sweep_runtime_directory(directory_ / "link", true);
  EXPECT_TRUE(exists(file));
  EXPECT_FALSE(control::is_runtime_directory(directory_ / "link", ::geteuid()));
  EXPECT_TRUE(control::is_runtime_directory(directory_.path(), ::geteuid()));
  EXPECT_FALSE(control::is_runtime_directory(directory_.path(), ::geteuid() + 1));
}

TEST_F(RuntimeFiles, TellWhatADeadDaemonLinked) {
  testing::TemporaryDirectory mount;
  const std::string link = directory_ / "link";
  const AlsoPlaces places(mount.path(), {{"headers", link}}, false, also_record_path(directory_ / "a.sock"));
  const std::vector<MountEntry> table = read_mount_table();
  const MountEntry* const there = find_mount_of(table, mount.path());
  ASSERT_NE(there, nullptr);
  ASSERT_EQ(places.show({there->id, there->device}), std::vector<std::string>{"linked"});
  sweep_runtime_directory(directory_.path(), false);
  EXPECT_TRUE(exists(link));
  {
    const Result<Fd> living = control::listen_at(directory_ / "a.sock", 1);
    ASSERT_TRUE(living.has_value());
    sweep();
    EXPECT_TRUE(exists(link));
  }
  sweep();
  EXPECT_FALSE(exists(link));
  EXPECT_FALSE(exists(directory_ / "a.also"));
}

}  // namespace
}  // namespace inductorfs::places
