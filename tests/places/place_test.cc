// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/places/place.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "inductorfs/places/mountpoint.h"
#include "places/roots_place.h"
#include "support/lacks.h"
#include "support/temporary_directory.h"

namespace inductorfs::places {
namespace {

constexpr uid_t kSomebody = 12345;

TEST(MakePlace, MakesWhatIsMissing) {
  const testing::TemporaryDirectory directory;

  const Result<Place> place = make_place(directory / "a/b/c");

  ASSERT_TRUE(place.has_value()) << place.error().what();
  EXPECT_EQ(attributes(directory / "a/b/c").st_mode & 07777U, 0755U);
  EXPECT_TRUE(make_place(directory / "a/b").has_value());
}

TEST(MakePlace, GivesTorchsDirectoryToItsUser) {
  if (::geteuid() != 0) INDUCTORFS_LACKS("root, who alone gives directories away");
  const testing::TemporaryDirectory directory;
  ASSERT_EQ(::chmod(directory.path().c_str(), 01777), 0);

  const Result<Place> place = make_place(directory / "torchinductor_nobody/precompiled_headers");
  ASSERT_TRUE(place.has_value()) << place.error().what();
  ASSERT_TRUE(make_place(directory / "other").has_value());

  ASSERT_TRUE(place->user.has_value());
  EXPECT_EQ(place->user->uid, kNobody);
  EXPECT_EQ(attributes(directory / "torchinductor_nobody").st_uid, kNobody);
  EXPECT_EQ(attributes(directory / "torchinductor_nobody/precompiled_headers").st_uid, kNobody);
  EXPECT_EQ(attributes(directory / "other").st_uid, 0U);
  EXPECT_EQ(::geteuid(), 0U);
  EXPECT_TRUE(make_place(directory / "after").has_value());
}

TEST_F(RootsPlace, IsNotBelowAStrangersDirectory) {
  make(torch_, kNobody);
  expect_refusal(torch_ + "/precompiled_headers", torch_);
  expect_refusal(torch_, torch_);
}

TEST_F(RootsPlace, IsNotWhereAStrangersDirectoryLeads) {
  make(torch_, kNobody);
  link(torch_ + "/precompiled_headers", kNobody);
  expect_refusal(torch_ + "/precompiled_headers/x", torch_);
  ASSERT_EQ(::lchown((torch_ + "/precompiled_headers").c_str(), 0, 0), 0);
  expect_refusal(torch_ + "/precompiled_headers", torch_);
}

TEST_F(RootsPlace, IsNotWhereAStrangersLinkLeads) {
  link(torch_, kNobody);
  expect_refusal(torch_ + "/x", torch_);
}

TEST_F(RootsPlace, MayBeWhereItsOwnLinkLeads) {
  link(torch_, 0);
  ASSERT_EQ(::symlink("./victim/../victim", (directory_ / "relative").c_str()), 0);

  const Result<Place> place = make_place(torch_ + "/x");
  ASSERT_TRUE(place.has_value()) << place.error().what();
  EXPECT_EQ(::access((victim_ + "/x").c_str(), F_OK), 0);
  ASSERT_TRUE(make_place(directory_ / "relative/y").has_value());
  EXPECT_EQ(::access((victim_ + "/y").c_str(), F_OK), 0);

  ASSERT_EQ(::symlink("loop", (directory_ / "loop").c_str()), 0);
  EXPECT_FALSE(make_place(directory_ / "loop/x").has_value());
}

TEST_F(RootsPlace, IsNotInADirectoryThatOthersMayWriteTo) {
  make(directory_ / "world", 0, 0777);
  expect_refusal(directory_ / "world/x", directory_ / "world");
  make(directory_ / "group", 0, 0775);
  expect_refusal(directory_ / "group/x", directory_ / "group");
}

TEST_F(RootsPlace, OfAUserIsThatUsersAllTheWay) {
  const std::string theirs = directory_ / "torchinductor_nobody";
  make(theirs, kNobody);
  make(theirs + "/roots", 0);
  make(theirs + "/third", kSomebody);
  link(theirs + "/link", kNobody);
  link(theirs + "/roots_link", 0);
  expect_refusal(theirs + "/roots", theirs + "/roots");
  expect_refusal(theirs + "/third/x", theirs + "/third");
  expect_refusal(theirs + "/link/x", theirs + "/link");
  expect_refusal(theirs + "/roots_link/x", theirs + "/roots_link");

  ASSERT_TRUE(make_place(theirs + "/a/torchinductor_root/b").has_value());
  EXPECT_EQ(attributes(theirs + "/a/torchinductor_root/b").st_uid, kNobody);
}

TEST_F(RootsPlace, ForItsOwnFilesIsNoUsers) {
  make(directory_ / "torchinductor_nobody", kNobody);
  make(directory_ / "group", 0, 0775);
  make(directory_ / "world", 0, 0777);
  link(directory_ / "link", kNobody);
  EXPECT_TRUE(check_own_place(directory_ / "missing/store").has_value());
  EXPECT_TRUE(check_own_place(directory_ / "group/store").has_value());
  for (const char* name : {"torchinductor_nobody", "world", "link"}) {
    const Result<void> own = check_own_place(directory_ / name + "/store");
    ASSERT_FALSE(own.has_value()) << name;
    EXPECT_EQ(own.error().what().find(directory_ / name + " "), 0U) << own.error().what();
  }
  EXPECT_NE(::access((directory_ / "missing").c_str(), F_OK), 0);
}

TEST_F(RootsPlace, ToMountOnIsBehindNoLinkOfAnotherUserThatLeadsToSomebodyElses) {
  const std::string theirs = directory_ / "theirs";
  make(theirs, kNobody);
  make(theirs + "/cache", kNobody);
  make(victim_ + "/cache", 0);
  link(theirs + "/link", kNobody);  // to the victim
  const Result<std::string> refused = resolve_mountpoint(theirs + "/link/cache");
  ASSERT_FALSE(refused.has_value()) << *refused;
  EXPECT_EQ(refused.error().code(), ErrorCode::kNotPermitted);
  EXPECT_EQ(refused.error().what().find(theirs + "/link is a symbolic link"), 0U) << refused.error().what();
  link(directory_ / "root", 0);
  EXPECT_EQ(resolve_mountpoint(directory_ / "root/./cache/../cache/").value(), victim_ + "/cache");

  ASSERT_EQ(::symlink("cache", (theirs + "/own").c_str()), 0);
  ASSERT_EQ(::lchown((theirs + "/own").c_str(), kNobody, kNobody), 0);
  EXPECT_EQ(resolve_mountpoint(theirs + "/own").value(), theirs + "/cache");
  ASSERT_EQ(::symlink("loop", (theirs + "/loop").c_str()), 0);
  EXPECT_FALSE(resolve_mountpoint(theirs + "/loop").has_value());
}

TEST_F(RootsPlace, ToMountOnIsTheOneThatWasLookedAt) {
  const std::string theirs = directory_ / "theirs";
  const std::string mountpoint = theirs + "/cache";
  make(theirs, kNobody);
  make(mountpoint, kNobody);
  const config::Ownership looked_at = ownership_of(mountpoint).value();
  EXPECT_TRUE(open_mountpoint(mountpoint, looked_at).has_value());

  ASSERT_EQ(::rename(mountpoint.c_str(), (theirs + "/away").c_str()), 0);
  link(mountpoint, kNobody);
  EXPECT_FALSE(open_mountpoint(mountpoint, looked_at).has_value());
  ASSERT_EQ(::unlink(mountpoint.c_str()), 0);
  make(mountpoint, 0);
  EXPECT_EQ(open_mountpoint(mountpoint, looked_at).error().code(), ErrorCode::kNotPermitted);

  ASSERT_EQ(::rename(theirs.c_str(), (directory_ / "gone").c_str()), 0);
  link(theirs, kNobody);
  make(victim_ + "/cache", kNobody);
  EXPECT_FALSE(open_mountpoint(mountpoint, looked_at).has_value());
}

/// Exchanges the place and a link all the time, as its owner can.
TEST(MakePlace, FailsWhereNoDirectoryCanBe) {
  const testing::TemporaryDirectory directory;
  ASSERT_EQ(::mkdir((directory / "a").c_str(), 0755), 0);
  ASSERT_EQ(::symlink("/no/such/place", (directory / "a/dangling").c_str()), 0);

  EXPECT_FALSE(make_place(directory / "a/dangling/x").has_value());
  EXPECT_FALSE(make_place("/dev/null/x").has_value());
  EXPECT_FALSE(make_place(directory / ("b/" + std::string(300, 'x'))).has_value());
}

}  // namespace
}  // namespace inductorfs::places
