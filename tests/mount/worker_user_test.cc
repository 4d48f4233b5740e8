// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/mount/worker_user.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "inductorfs/base/fd.h"
#include "support/lacks.h"
#include "support/temporary_directory.h"

namespace inductorfs::mount {
namespace {

constexpr config::WorkerUser kUser{.uid = 60957, .gid = 60958, .groups = {}};

class GiveStore : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) INDUCTORFS_LACKS("root");
    ASSERT_TRUE(make_directories(store_ + "/files/view", 0700));
    for (const char* name : {"/format", "/lock", "/fingerprint.cache", "/files/view/a"})
      std::ofstream(store_ + name) << name;
    std::ofstream(directory_ / "outside") << "root's";
    ASSERT_EQ(::symlink((directory_ / "outside").c_str(), (store_ + "/files/link").c_str()), 0);
  }
  [[nodiscard]] static uid_t owner_of(const std::string& path) {
    struct stat found {};
    return ::lstat(path.c_str(), &found) == 0 ? found.st_uid : 4711;
  }
  testing::TemporaryDirectory directory_;
  std::string store_ = directory_ / "store";
};

TEST_F(GiveStore, GivesAllButWhatIsRootsToKeepAndBack) {
  const auto check = [&](uid_t uid) {
    for (const char* name : {"", "/format", "/files", "/files/view", "/files/view/a", "/files/link"}) {
      EXPECT_EQ(owner_of(store_ + name), uid) << name;
    }
    EXPECT_EQ(owner_of(store_ + "/fingerprint.cache"), 0U);
    EXPECT_EQ(owner_of(directory_ / "outside"), 0U) << "a link is given, not what it leads to";
  };
  ASSERT_TRUE(give_store(store_, kUser));
  check(kUser.uid);
  ASSERT_TRUE(give_store(store_, {}));
  check(0);
}

TEST_F(GiveStore, MakesOneInDirectoriesThatAllMayEnter) {
  ASSERT_TRUE(give_store(directory_ / "new/way/store", kUser));
  EXPECT_EQ(owner_of(directory_ / "new/way/store"), kUser.uid);
  struct stat found {};
  ASSERT_EQ(::stat((directory_ / "new/way").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777U, 0755U);
  EXPECT_EQ(found.st_uid, 0U);
}

TEST_F(GiveStore, FollowsNoLinkThatStandsForADirectory) {
  ASSERT_TRUE(make_directories(directory_ / "elsewhere/below", 0755));
  ASSERT_EQ(::symlink((directory_ / "elsewhere").c_str(), (store_ + "/files/way").c_str()), 0);
  ASSERT_TRUE(give_store(store_, kUser));
  EXPECT_EQ(owner_of(directory_ / "elsewhere/below"), 0U);
  EXPECT_EQ(owner_of(store_ + "/files/way"), kUser.uid);
}

TEST_F(GiveStore, LeavesWhatOthersHaveThere) {
  ASSERT_EQ(::chown((store_ + "/files/view/a").c_str(), 12345, 12345), 0);
  ASSERT_TRUE(give_store(store_, kUser));
  EXPECT_EQ(owner_of(store_ + "/files/view/a"), 12345U);
}

TEST_F(GiveStore, GivesAWorkersStoreNothingOfRoots) {
  ASSERT_TRUE(give_store(store_, kUser));
  std::ofstream(store_ + "/files/root") << "root's";
  ASSERT_TRUE(give_store(store_, {.uid = kUser.uid + 1, .gid = kUser.gid, .groups = {}}));
  EXPECT_EQ(owner_of(store_ + "/files/view/a"), kUser.uid + 1);
  EXPECT_EQ(owner_of(store_ + "/files/root"), 0U);
}

TEST_F(GiveStore, TouchesNoDirectoryThatIsNoStore) {
  ASSERT_EQ(::unlink((store_ + "/format").c_str()), 0);
  const auto given = give_store(store_, kUser);
  ASSERT_FALSE(given);
  EXPECT_EQ(given.error().code(), ErrorCode::kInvalid);
  EXPECT_EQ(owner_of(store_), 0U);
  EXPECT_EQ(owner_of(store_ + "/files/view/a"), 0U);
}

TEST_F(GiveStore, TouchesNoneThatIsInUse) {
  const Fd lock(::open((store_ + "/lock").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
  const auto given = give_store(store_, kUser);
  ASSERT_FALSE(given);
  EXPECT_EQ(given.error().code(), ErrorCode::kBusy);
  EXPECT_EQ(owner_of(store_ + "/format"), 0U);
}

TEST(WorkerUser, IsNobodyElse) {
  const auto user = config::worker_user();
  ASSERT_TRUE(user) << user.error().what();
  EXPECT_NE(user->uid, 0U);
}

}  // namespace
}  // namespace inductorfs::mount
