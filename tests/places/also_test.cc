// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/places/also.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>

#include "inductorfs/base/fd.h"
#include "support/lacks.h"
#include "support/temporary_directory.h"

namespace inductorfs::places {
namespace {

using States = std::vector<std::string>;

/// A plain directory stands for the mount: links are the same on it. Bind mounts are tested with a real one
/// (tests/mount/test_further_places.py).
class AlsoLinks : public ::testing::Test {
 protected:
  AlsoLinks() {
    EXPECT_EQ(::mkdir(mount_.c_str(), 0751), 0);
    EXPECT_EQ(::chmod(mount_.c_str(), 0751), 0);
  }
  static BindId mount_of(const std::string& path) {
    const std::vector<MountEntry> table = read_mount_table();
    const MountEntry* const entry = find_mount_of(table, path);
    return entry == nullptr ? BindId{} : BindId{entry->id, entry->device};
  }
  AlsoPlaces places(const std::string& path, const std::string& name = "headers") {
    return AlsoPlaces(mount_, {{name, path}}, false, record_);
  }
  static bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }
  std::string target(const std::string& path) {
    std::array<char, 4096> text{};
    const ssize_t size = ::readlink(path.c_str(), text.data(), text.size());
    return size < 0 ? "" : std::string(text.data(), static_cast<size_t>(size));
  }
  testing::TemporaryDirectory directory_;
  std::string mount_ = directory_ / "mount";
  std::string place_ = directory_ / "tmp/torchinductor_x/headers";
  std::string record_ = also_record_path(directory_ / "0123.sock");
  BindId here_ = mount_of(directory_.path());
};

TEST_F(AlsoLinks, ShowADirectoryOfTheMountElsewhere) {
  EXPECT_EQ(places(place_).show(here_), States{"linked"});

  EXPECT_EQ(target(place_), mount_ + "/headers");
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, place_ + "/x.h", "text").has_value());
  EXPECT_EQ(read_file(AT_FDCWD, mount_ + "/headers/x.h", 100).value(), "text");
}

TEST_F(AlsoLinks, MakeTheDirectoryAsOpenAsTheMount) {
  EXPECT_EQ(places(place_, "deep/headers").show(here_), States{"linked"});
  struct stat found {};
  ASSERT_EQ(::stat((mount_ + "/deep/headers").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777U & ~022U, 0751U & ~022U);
}

TEST_F(AlsoLinks, GoAtTheEnd) {
  const AlsoPlaces also = places(place_);
  EXPECT_EQ(also.show(here_), States{"linked"});
  also.hide(here_);
  also.hide(here_);

  EXPECT_EQ(target(place_), "");
  EXPECT_TRUE(exists(mount_ + "/headers"));
  EXPECT_FALSE(exists(record_));
}

/// As torch's on-disk caches lie in `cache`, where torch may have files already.
TEST_F(AlsoLinks, OfOneDirectoryLeaveWhatIsBesideThem) {
  const std::string cache = directory_ / "cache";
  ASSERT_EQ(::mkdir(cache.c_str(), 0755), 0);
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, cache + "/timings", "text").has_value());
  const AlsoPlaces also(mount_, {{"cache/a", cache + "/a"}, {"cache/b", cache + "/b"}}, false, record_);

  EXPECT_EQ(also.show(here_), (States{"linked", "linked"}));
  for (const std::string name : {"a", "b"}) EXPECT_EQ(target(cache + "/" + name), mount_ + "/cache/" + name);
  EXPECT_NE(::access((mount_ + "/cache/timings").c_str(), F_OK), 0);

  also.hide(here_);
  for (const std::string name : {"a", "b"}) EXPECT_EQ(target(cache + "/" + name), "");
  EXPECT_EQ(read_file(AT_FDCWD, cache + "/timings", 100).value(), "text");
}

TEST_F(AlsoLinks, TakeOverTheLinkOfADeadPredecessor) {
  EXPECT_EQ(places(place_).show(here_), States{"linked"});
  EXPECT_EQ(places(place_).show(here_), States{"linked"});
  EXPECT_EQ(target(place_), mount_ + "/headers");
}

TEST_F(AlsoLinks, OfADeadPredecessorGoIfNobodyWantsThemAgain) {
  EXPECT_EQ(places(directory_ / "other\xff \n").show(here_), States{"linked"});
  EXPECT_EQ(places(place_).show(here_), States{"linked"});
  EXPECT_EQ(target(directory_ / "other\xff \n"), "");
  EXPECT_EQ(target(place_), mount_ + "/headers");
}

TEST_F(AlsoLinks, OfAMountThatIsGoneAreTakenBack) {
  EXPECT_EQ(places(place_).show(here_), States{"linked"});
  take_back_places(record_);
  EXPECT_EQ(target(place_), "");
  EXPECT_FALSE(exists(record_));
}

TEST_F(AlsoLinks, AreNotTakenBackByWhatIsNoRecord) {
  EXPECT_EQ(places(place_).show(here_), States{"linked"});
  const Result<std::string> whole = read_file(AT_FDCWD, record_, 1000);
  ASSERT_TRUE(whole.has_value());
  for (size_t size = 0; size < whole->size(); ++size) {
    ASSERT_TRUE(write_file_atomically(AT_FDCWD, record_, whole->substr(0, size)).has_value());
    take_back_places(record_);
    EXPECT_EQ(target(place_), mount_ + "/headers") << size;
  }
}

TEST_F(AlsoLinks, LeaveWhatIsThereAndSaySo) {
  ASSERT_TRUE(make_directories(place_).has_value());
  const AlsoPlaces also = places(place_);

  const States states = also.show(here_);

  EXPECT_EQ(states[0].find("failed: " + place_ + " exists: "), 0U) << states[0];
  also.hide(here_);
  EXPECT_EQ(::access(place_.c_str(), F_OK), 0);
}

TEST_F(AlsoLinks, LeaveALinkThatSomebodyTurnedElsewhere) {
  const AlsoPlaces also = places(place_);
  EXPECT_EQ(also.show(here_), States{"linked"});
  ASSERT_EQ(::unlink(place_.c_str()), 0);
  ASSERT_EQ(::symlink("/elsewhere", place_.c_str()), 0);

  also.hide(here_);

  EXPECT_EQ(target(place_), "/elsewhere");
}

TEST_F(AlsoLinks, FailAloneWhenTheMountHasAFileOfThatName) {
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, mount_ + "/file", "x").has_value());
  const AlsoPlaces also(mount_, {{"file", directory_ / "a"}, {"headers", directory_ / "b"}}, false, record_);

  const States states = also.show(here_);

  EXPECT_TRUE(states[0].starts_with(kPlaceFailed)) << states[0];
  EXPECT_EQ(states[1], "linked");
}

/// Another file system stands for the mount, below a directory that its owner exchanges for another one.
class AlsoExchanged : public AlsoLinks {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) INDUCTORFS_LACKS("root, to mount");
    for (const std::string& path : {around_, around_ + "/m", other_, victim_}) {
      ASSERT_EQ(::mkdir(path.c_str(), 0755), 0);
    }
    ASSERT_EQ(::mount("there", (around_ + "/m").c_str(), "tmpfs", 0, "mode=0755"), 0);
    there_ = mount_of(around_ + "/m");
    ASSERT_EQ(::rename(around_.c_str(), away_.c_str()), 0);
  }
  void TearDown() override {
    for (const std::string& path : {place_, away_ + "/m"}) (void)::umount2(path.c_str(), MNT_DETACH);
  }
  /// What root's process and an ordinary user's say, and that nothing was made.
  void expect_refused() {
    ASSERT_EQ(::rename(other_.c_str(), around_.c_str()), 0);
    for (const bool root : {true, false}) {
      const AlsoPlaces also(around_ + "/m", {{"headers", place_}}, root, record_);
      EXPECT_EQ(also.show(there_), States{"failed: " + around_ +
                                          "/m leads to something else than this mount: look who may rename "
                                          "the directories around it, and mount again"});
      EXPECT_EQ(mount_of(place_), here_) << "nothing is bound";
      EXPECT_EQ(target(place_), "");
      also.hide(there_);
    }
    EXPECT_EQ(::rmdir(victim_.c_str()), 0) << "nothing was made in it";
  }
  std::string around_ = directory_ / "around";
  std::string away_ = directory_ / "away";
  std::string other_ = directory_ / "other";
  std::string victim_ = directory_ / "victim";
  BindId there_;
};

TEST_F(AlsoExchanged, MakesNothingWhereALinkLeads) {
  ASSERT_EQ(::symlink(victim_.c_str(), (other_ + "/m").c_str()), 0);
  expect_refused();
}

TEST_F(AlsoExchanged, MakesNothingInAnotherDirectory) {
  const std::string own = other_ + "/m";
  ASSERT_EQ(::mkdir(own.c_str(), 0755), 0);
  expect_refused();
  EXPECT_EQ(::rmdir((around_ + "/m").c_str()), 0) << "nothing was made in it";
}

TEST_F(AlsoExchanged, ShowsNoMountBelowTheMount) {
  const std::string below = away_ + "/m/headers";
  ASSERT_EQ(::mkdir(below.c_str(), 0755), 0);
  ASSERT_EQ(::mount("below", below.c_str(), "tmpfs", 0, "mode=0755"), 0);
  const AlsoPlaces also(away_ + "/m", {{"headers", place_}}, true, record_);
  EXPECT_EQ(also.show(there_), States{"failed: " + below + " is another mount: unmount that, or name another place"});
  EXPECT_EQ(::umount2(below.c_str(), 0), 0);
}

}  // namespace
}  // namespace inductorfs::places
