// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/places/sweep.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "inductorfs/control/control.h"
#include "inductorfs/control/runtime_directory.h"
#include "inductorfs/control/socket.h"
#include "inductorfs/places/also_record.h"
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
  ASSERT_TRUE(write_also_record(directory_ / "a.also", {"/nowhere", {}}).has_value());
  sweep();
  EXPECT_TRUE(exists(path));
  EXPECT_TRUE(exists(directory_ / "b.sock"));
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

TEST_F(RuntimeFiles, TellWhatADeadDaemonMade) {
  const std::string made = directory_ / "made";
  const std::string link = made + "/link";
  ASSERT_EQ(::mkdir(made.c_str(), 0755), 0);
  ASSERT_EQ(::symlink("/gone/headers", link.c_str()), 0);
  AlsoState state;
  state.also = {"headers", link};
  state.kind = AlsoState::Kind::kLinked;
  state.made = {made};
  const std::string record = also_record_path(directory_ / "a.sock");
  ASSERT_TRUE(write_also_record(record, {"/gone", {state}}).has_value());
  sweep();
  EXPECT_FALSE(exists(made));
  EXPECT_FALSE(exists(record));
}

TEST_F(RuntimeFiles, ARecordKeepsEveryByteOfAPath) {
  AlsoState state;
  state.also = {"headers", "/tmp/\xff \n\""};
  state.kind = AlsoState::Kind::kBound;
  state.made = {"/tmp/\xff", "/tmp/\xff/b"};
  state.bound = {~uint64_t{0}, "0:51"};
  const std::string path = directory_ / "a.also";
  ASSERT_TRUE(write_also_record(path, {"/mount\x01", {state}}).has_value());
  const auto read = read_also_record(path);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->mountpoint, "/mount\x01");
  ASSERT_EQ(read->places.size(), 1U);
  EXPECT_EQ(read->places[0].also.path, state.also.path);
  EXPECT_EQ(read->places[0].made, state.made);
  EXPECT_EQ(read->places[0].bound, state.bound);
}

TEST_F(RuntimeFiles, ADamagedRecordTellsNothing) {
  const std::string path = directory_ / "a.also";
  for (const char* text : {"", "{", "[]", R"({"mountpoint":1})", R"({"mountpoint":"2f","places":3})",
                           R"({"mountpoint":"zz","places":[]})"}) {
    ASSERT_TRUE(write_file_atomically(AT_FDCWD, path, text).has_value());
    EXPECT_FALSE(read_also_record(path).has_value()) << text;
  }
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, path,
                                    R"({"mountpoint":"2f61","places":[7,{"path":"zz"},{"path":"61","made":[1]}]})")
                  .has_value());
  ASSERT_TRUE(read_also_record(path).has_value());
  EXPECT_TRUE(read_also_record(path)->places.empty());
}

}  // namespace
}  // namespace inductorfs::places
