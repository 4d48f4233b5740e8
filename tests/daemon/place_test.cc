// SPDX-License-Identifier: Apache-2.0
#include "place.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/lacks.h"
#include "support/temporary_directory.h"

namespace inductorfs::daemon {
namespace {

constexpr uid_t kSomebody = 12345;

struct stat attributes(const std::string& path) {
  struct stat found {};
  EXPECT_EQ(::lstat(path.c_str(), &found), 0) << path;
  return found;
}

TEST(MakePlace, MakesWhatIsMissingAndRemembersIt) {
  const testing::TemporaryDirectory directory;

  const Result<MadeDirectory> place = make_place(directory / "a/b/c");

  ASSERT_TRUE(place.has_value()) << place.error().what();
  EXPECT_EQ(place->made, (std::vector<std::string>{directory / "a", directory / "a/b", directory / "a/b/c"}));
  EXPECT_EQ(attributes(directory / "a/b/c").st_mode & 07777U, 0755U);
  EXPECT_TRUE(make_place(directory / "a/b").value().made.empty());
}

TEST(MakePlace, GivesADirectoryToTheOwnerOfTheOneAroundIt) {
  if (::geteuid() != 0) INDUCTORFS_LACKS("root, who alone gives directories away");
  const testing::TemporaryDirectory directory;
  ASSERT_EQ(::chown(directory.path().c_str(), kSomebody, kSomebody), 0);

  ASSERT_TRUE(make_place(directory / "a/b").has_value());

  EXPECT_EQ(attributes(directory / "a/b").st_uid, kSomebody);
}

TEST(MakePlace, GivesTorchsDirectoryInASharedOneToItsUser) {
  if (::geteuid() != 0) INDUCTORFS_LACKS("root, who alone gives directories away");
  const testing::TemporaryDirectory directory;
  ASSERT_EQ(::chown(directory.path().c_str(), kSomebody, kSomebody), 0);
  ASSERT_EQ(::chmod(directory.path().c_str(), 01777), 0);

  ASSERT_TRUE(make_place(directory / "torchinductor_nobody/precompiled_headers").has_value());
  ASSERT_TRUE(make_place(directory / "other").has_value());

  EXPECT_NE(attributes(directory / "torchinductor_nobody").st_uid, 0U);
  EXPECT_NE(attributes(directory / "torchinductor_nobody").st_uid, kSomebody);
  EXPECT_EQ(attributes(directory / "torchinductor_nobody/precompiled_headers").st_uid,
            attributes(directory / "torchinductor_nobody").st_uid);
  EXPECT_EQ(attributes(directory / "other").st_uid, 0U);
}

TEST(MakePlace, FollowsNoStrangersLinkInASharedDirectory) {
  if (::geteuid() != 0) INDUCTORFS_LACKS("root, for a link of another user");
  const testing::TemporaryDirectory directory;
  ASSERT_EQ(::chmod(directory.path().c_str(), 01777), 0);
  ASSERT_EQ(::mkdir((directory / "target").c_str(), 0755), 0);
  ASSERT_EQ(::symlink((directory / "target").c_str(), (directory / "mine").c_str()), 0);
  ASSERT_EQ(::symlink((directory / "target").c_str(), (directory / "theirs").c_str()), 0);
  ASSERT_EQ(::lchown((directory / "theirs").c_str(), kSomebody, kSomebody), 0);

  EXPECT_TRUE(make_place(directory / "mine/x").has_value());
  const Result<MadeDirectory> refused = make_place(directory / "theirs/y");

  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kNotPermitted);
  EXPECT_NE(::access((directory / "target/y").c_str(), F_OK), 0);
}

TEST(MakePlace, TakesBackWhatItMadeWhenItFails) {
  const testing::TemporaryDirectory directory;
  ASSERT_EQ(::mkdir((directory / "a").c_str(), 0755), 0);
  ASSERT_EQ(::symlink("/no/such/place", (directory / "a/dangling").c_str()), 0);

  EXPECT_FALSE(make_place(directory / "a/dangling/x").has_value());
  EXPECT_FALSE(make_place("/dev/null/x").has_value());
  EXPECT_FALSE(make_place(directory / ("b/" + std::string(300, 'x'))).has_value());
  EXPECT_NE(::access((directory / "b").c_str(), F_OK), 0);
}

TEST(RemoveMade, KeepsWhatIsInUse) {
  const testing::TemporaryDirectory directory;
  const Result<MadeDirectory> place = make_place(directory / "a/b/c");
  ASSERT_TRUE(place.has_value());
  ASSERT_EQ(::mkdir((directory / "a/other").c_str(), 0755), 0);

  remove_made(place->made);

  EXPECT_NE(::access((directory / "a/b").c_str(), F_OK), 0);
  EXPECT_EQ(::access((directory / "a/other").c_str(), F_OK), 0);
}

}  // namespace
}  // namespace inductorfs::daemon
