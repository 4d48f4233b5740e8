// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/places/links.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>

#include "inductorfs/base/fd.h"
#include "support/lacks.h"
#include "support/temporary_directory.h"

namespace inductorfs::places {
namespace {

using Lines = std::vector<std::string>;

/// A plain directory stands for the mount.
class DefaultLinks : public ::testing::Test {
 protected:
  DefaultLinks() { EXPECT_EQ(::mkdir(root_.c_str(), 0755), 0); }
  static std::string target(const std::string& path) {
    std::array<char, 4096> text{};
    const ssize_t size = ::readlink(path.c_str(), text.data(), text.size());
    return size < 0 ? "" : std::string(text.data(), static_cast<size_t>(size));
  }
  void expect_all() {
    const auto told = link_default_places(root_, torch_);
    ASSERT_TRUE(told.has_value()) << told.error().what();
    Lines expected;
    for (const char* name : {"precompiled_headers", "cache/should_pad", "cache/inductor_on_disk_cache"}) {
      expected.push_back(torch_ + "/" + name + " leads into the mount");
      EXPECT_EQ(target(torch_ + "/" + name), root_ + "/" + name);
      EXPECT_EQ(::access((torch_ + "/" + name).c_str(), F_OK), 0) << name;
    }
    EXPECT_EQ(*told, expected);
  }
  void expect_refused(const std::string& why) {
    const auto told = link_default_places(root_, torch_);
    ASSERT_FALSE(told.has_value());
    EXPECT_EQ(told.error().what(), why);
  }
  testing::TemporaryDirectory directory_;
  std::string root_ = directory_ / "mount";
  std::string torch_ = directory_ / "torchinductor_x";
};

TEST_F(DefaultLinks, AreMadeOnce) {
  expect_all();
  expect_all();
}

TEST_F(DefaultLinks, ThatLeadNowhereAreTurned) {
  ASSERT_TRUE(make_directories(torch_ + "/cache").has_value());
  ASSERT_EQ(::symlink("/no/such/mount/cache/should_pad", (torch_ + "/cache/should_pad").c_str()), 0);
  expect_all();
}

TEST_F(DefaultLinks, ReplaceNothingThatSomebodyElseMade) {
  const std::string own = directory_ / "precompiled_headers";
  const std::string headers = torch_ + "/precompiled_headers";
  ASSERT_TRUE(make_directories(own).has_value());
  ASSERT_TRUE(make_directories(torch_ + "/cache/should_pad").has_value());
  ASSERT_EQ(::symlink(own.c_str(), headers.c_str()), 0);
  ASSERT_EQ(::symlink("/elsewhere", (torch_ + "/cache/inductor_on_disk_cache").c_str()), 0);

  const auto told = link_default_places(root_, torch_);

  ASSERT_TRUE(told.has_value()) << told.error().what();
  ASSERT_EQ(told->size(), 3U);
  for (const std::string& line : *told) {
    EXPECT_NE(line.find(" does not lead into the mount: it exists, and this command has not made it"), line.npos)
        << line;
  }
  EXPECT_EQ(target(headers), own);
  EXPECT_EQ(target(torch_ + "/cache/should_pad"), "");
  EXPECT_EQ(target(torch_ + "/cache/inductor_on_disk_cache"), "/elsewhere");
}

TEST_F(DefaultLinks, AreNotMadeWhereALinkLeads) {
  const std::string victim = directory_ / "victim";
  ASSERT_EQ(::mkdir(victim.c_str(), 0755), 0);
  ASSERT_EQ(::symlink(victim.c_str(), torch_.c_str()), 0);
  expect_refused(torch_ + " is a link, or no directory");
  EXPECT_EQ(::rmdir(victim.c_str()), 0) << "nothing was made in it";
}

TEST_F(DefaultLinks, AreNotMadeInAnotherUsersDirectory) {
  if (::geteuid() != 0) INDUCTORFS_LACKS("root, who alone gives directories away");
  ASSERT_EQ(::mkdir(torch_.c_str(), 0777), 0);
  ASSERT_EQ(::chown(torch_.c_str(), 12345, 12345), 0);
  expect_refused(torch_ + " belongs to the user 12345");
}

TEST_F(DefaultLinks, DoNotLeadToAnotherUsersDirectory) {
  if (::geteuid() != 0) INDUCTORFS_LACKS("root, who alone gives directories away");
  const std::string headers = root_ + "/precompiled_headers";
  ASSERT_EQ(::mkdir(headers.c_str(), 0777), 0);
  ASSERT_EQ(::chown(headers.c_str(), 12345, 12345), 0);
  const auto told = link_default_places(root_, torch_);
  ASSERT_TRUE(told.has_value()) << told.error().what();
  EXPECT_EQ(told->front(),
            torch_ + "/precompiled_headers does not lead into the mount: " + headers + " belongs to the user 12345");
  ASSERT_EQ(::chown(root_.c_str(), 12345, 12345), 0);
  expect_refused(root_ + " belongs to the user 12345");
}

TEST_F(DefaultLinks, LeadOutOfTheMount) {
  torch_ = root_ + "/torchinductor_x";
  expect_refused(root_ + " and " + torch_ + " must not contain each other");
}

}  // namespace
}  // namespace inductorfs::places
