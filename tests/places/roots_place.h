// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "inductorfs/places/place.h"
#include "support/lacks.h"
#include "support/temporary_directory.h"

namespace inductorfs::places {

inline constexpr uid_t kNobody = 65534;

inline struct stat attributes(const std::string& path) {
  struct stat found {};
  EXPECT_EQ(::lstat(path.c_str(), &found), 0) << path;
  return found;
}

/// A directory that everybody may write to, as /tmp, and what root must not be led to.
class RootsPlace : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) INDUCTORFS_LACKS("root, whom others could lead elsewhere");
    ASSERT_EQ(::chmod(directory_.path().c_str(), 01777), 0);
    ASSERT_EQ(::mkdir(victim_.c_str(), 0755), 0);
  }
  void make(const std::string& path, uid_t owner, mode_t mode = 0755) {
    ASSERT_EQ(::mkdir(path.c_str(), mode), 0);
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    ASSERT_EQ(::chown(path.c_str(), owner, owner), 0);
  }
  void link(const std::string& path, uid_t owner) {
    ASSERT_EQ(::symlink(victim_.c_str(), path.c_str()), 0);
    ASSERT_EQ(::lchown(path.c_str(), owner, owner), 0);
  }
  /// Refused, and the error names the path that is in the way; nothing was made.
  void expect_refusal(const std::string& path, const std::string& named) {
    const Result<Place> place = make_place(path);
    ASSERT_FALSE(place.has_value());
    EXPECT_EQ(place.error().code(), ErrorCode::kNotPermitted) << place.error().what();
    EXPECT_EQ(place.error().what().find(named + " "), 0U) << place.error().what();
    EXPECT_NE(::access((victim_ + "/x").c_str(), F_OK), 0);
  }
  testing::TemporaryDirectory directory_;
  std::string victim_ = directory_ / "victim";
  std::string torch_ = directory_ / "torchinductor_root";
};

}  // namespace inductorfs::places
