// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/places/also.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>

#include "inductorfs/base/fd.h"
#include "support/temporary_directory.h"

namespace inductorfs::places {
namespace {

/// A plain directory stands for the mount: links are the same on it. Bind mounts are tested with a real one
/// (cli_test.cc).
class AlsoLinks : public ::testing::Test {
 protected:
  AlsoLinks() {
    EXPECT_EQ(::mkdir(mount_.c_str(), 0751), 0);
    EXPECT_EQ(::chmod(mount_.c_str(), 0751), 0);
  }
  AlsoPlaces places(const std::string& path, const std::string& name = "headers") {
    return AlsoPlaces(mount_, {{name, path}}, false);
  }
  std::string target(const std::string& path) {
    std::array<char, 4096> text{};
    const ssize_t size = ::readlink(path.c_str(), text.data(), text.size());
    return size < 0 ? "" : std::string(text.data(), static_cast<size_t>(size));
  }
  testing::TemporaryDirectory directory_;
  std::string mount_ = directory_ / "mount";
  std::string place_ = directory_ / "tmp/torchinductor_x/headers";
};

TEST_F(AlsoLinks, ShowADirectoryOfTheMountElsewhere) {
  AlsoPlaces also = places(place_);
  EXPECT_EQ(also.states()[0].to_string(), "absent");

  also.show();

  EXPECT_EQ(also.states()[0].to_string(), "linked");
  EXPECT_EQ(target(place_), mount_ + "/headers");
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, place_ + "/x.h", "text").has_value());
  EXPECT_EQ(read_file(AT_FDCWD, mount_ + "/headers/x.h", 100).value(), "text");
}

TEST_F(AlsoLinks, MakeTheDirectoryAsOpenAsTheMount) {
  AlsoPlaces also = places(place_, "deep/headers");
  also.show();
  struct stat found {};
  ASSERT_EQ(::stat((mount_ + "/deep/headers").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777U & ~022U, 0751U & ~022U);
}

TEST_F(AlsoLinks, GoWithTheirParentsAtTheEnd) {
  AlsoPlaces also = places(place_);
  also.show();
  also.hide();
  also.hide();

  EXPECT_EQ(also.states()[0].to_string(), "absent");
  EXPECT_NE(::access((directory_ / "tmp").c_str(), F_OK), 0);
  EXPECT_EQ(::access((mount_ + "/headers").c_str(), F_OK), 0);
}

TEST_F(AlsoLinks, TakeOverTheLinkOfADeadPredecessor) {
  places(place_).show();
  AlsoPlaces also = places(place_);
  also.show();
  EXPECT_EQ(also.states()[0].to_string(), "linked");
}

TEST_F(AlsoLinks, LeaveWhatIsThereAndSaySo) {
  ASSERT_TRUE(make_directories(place_).has_value());
  AlsoPlaces also = places(place_);

  also.show();

  EXPECT_EQ(also.states()[0].to_string().find("failed: " + place_ + " exists: "), 0U) << also.states()[0].to_string();
  also.hide();
  EXPECT_EQ(::access(place_.c_str(), F_OK), 0);
}

TEST_F(AlsoLinks, LeaveALinkThatSomebodyTurnedElsewhere) {
  AlsoPlaces also = places(place_);
  also.show();
  ASSERT_EQ(::unlink(place_.c_str()), 0);
  ASSERT_EQ(::symlink("/elsewhere", place_.c_str()), 0);

  also.hide();

  EXPECT_EQ(target(place_), "/elsewhere");
}

TEST_F(AlsoLinks, FailAloneWhenTheMountHasAFileOfThatName) {
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, mount_ + "/file", "x").has_value());
  AlsoPlaces also(mount_, {{"file", directory_ / "a"}, {"headers", directory_ / "b"}}, false);

  also.show();

  EXPECT_EQ(also.states()[0].kind, AlsoState::Kind::kFailed);
  EXPECT_EQ(also.states()[1].kind, AlsoState::Kind::kLinked);
}

}  // namespace
}  // namespace inductorfs::places
