// SPDX-License-Identifier: Apache-2.0
#include "vfs/tree/common_access.h"

#include <gtest/gtest.h>

#include <string>

#include "support/lacks.h"
#include "vfs/disk/inode_marks.h"
#include "vfs/host.h"

namespace inductorfs::testing {
namespace {

using layout::CommonUse;
using vfs::Attributes;
using vfs::RootAccess;

constexpr uid_t kOne = 1000;
constexpr uid_t kOther = 1001;
constexpr gid_t kTeam = 2000;

Attributes made_by(uid_t uid, mode_t mode) {
  Attributes result;
  result.uid = uid;
  result.gid = uid;
  result.mode = mode;
  return result;
}

mode_t directory(mode_t mode, const RootAccess& root) {
  return vfs::widened(made_by(kOne, S_IFDIR | mode), root, CommonUse::kNone).mode & 07777;
}

mode_t file(mode_t mode, const RootAccess& root, CommonUse use = CommonUse::kRead) {
  return vfs::widened(made_by(kOne, S_IFREG | mode), root, use).mode & 07777;
}

TEST(CommonAccess, FollowsTheRoot) {
  EXPECT_EQ(directory(0700, {0, 0, 01777}), 0777U);
  EXPECT_EQ(directory(0700, {0, 0, 0755}), 0755U);
  EXPECT_EQ(directory(0755, {0, 0, 0777}), 0777U);
  EXPECT_EQ(file(0600, {0, 0, 01777}), 0644U) << "whoever writes it anew renames a file of its own onto it";
  EXPECT_EQ(file(0700, {0, 0, 0755}), 0755U);
  EXPECT_EQ(file(0600, {0, 0, 01777}, CommonUse::kWrite), 0666U);
  EXPECT_EQ(file(0644, {0, 0, 0755}, CommonUse::kWrite), 0644U) << "a reader of the root takes no lock";
}

TEST(CommonAccess, GivesNothingThatTheRootDoesNotGive) {
  for (const mode_t root : {0700U, 0600U, 0711U, 0744U, 01700U}) {
    EXPECT_EQ(file(0600, {0, 0, root}), 0600U) << std::oct << root;
    EXPECT_EQ(file(0600, {0, 0, root}, CommonUse::kWrite), 0600U) << std::oct << root;
  }
  EXPECT_EQ(directory(0700, {0, 0, 0700}), 0700U);
  EXPECT_EQ(directory(0700, {0, 0, 0711}), 0711U);
  EXPECT_EQ(directory(0700, {0, kOne, 0707}) & 0077, 0U) << "whoever is of the root's group may not enter the root";
}

TEST(CommonAccess, TakesNothingAwayButTheStickyBit) {
  EXPECT_EQ(directory(0755, {0, 0, 0700}), 0755U);
  EXPECT_EQ(directory(02775, {0, 0, 0755}), 02775U);
  EXPECT_EQ(directory(01777, {0, 0, 01777}), 0777U);
  EXPECT_EQ(file(0666, {0, 0, 0755}), 0666U);
}

/// Without it the members of the root's group would be others in what one of them made.
TEST(CommonAccess, GoesToTheRootsGroupWhereThatHasRightsOfItsOwn) {
  const RootAccess root{0, kTeam, 0770};
  const Attributes made = vfs::widened(made_by(kOne, S_IFDIR | 0750), root, CommonUse::kNone);
  EXPECT_EQ(made.gid, kTeam);
  EXPECT_EQ(made.mode & 07777, 0770U);
  const Attributes lock = vfs::widened(made_by(kOne, S_IFREG | 0640), root, CommonUse::kWrite);
  EXPECT_EQ(lock.gid, kTeam);
  EXPECT_EQ(lock.mode & 07777, 0660U);
  const Attributes readers = vfs::widened(made_by(kOne, S_IFREG | 0660), {0, kTeam, 0750}, CommonUse::kRead);
  EXPECT_EQ(readers.mode & 07777, 0640U) << "the maker's group might write, the root's may only read";
  const Attributes chosen = vfs::widened(made_by(kOne, S_IFREG | 0670), {0, kTeam, 0750}, CommonUse::kRead, true);
  EXPECT_EQ(chosen.gid, kTeam);
  EXPECT_EQ(chosen.mode & 07777, 0650U) << "not more than the root gives to its group";
  EXPECT_EQ(vfs::widened(made_by(kOne, S_IFDIR | 0755), {0, kTeam, 0777}, CommonUse::kNone).gid, kOne);
}

TEST(CommonAccess, GivesWhatTheSuperuserMadeToTheRootsOwner) {
  EXPECT_EQ(vfs::widened(made_by(0, S_IFDIR | 0755), {kOne, kOne, 0755}, CommonUse::kNone).uid, kOne);
  EXPECT_EQ(vfs::widened(made_by(0, S_IFREG | 0600), {kOne, kOne, 0700}, CommonUse::kRead).uid, kOne);
  EXPECT_EQ(vfs::widened(made_by(kOther, S_IFDIR | 0700), {kOne, kOne, 0777}, CommonUse::kNone).uid, kOther);
}

class CommonFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) INDUCTORFS_LACKS("root, to have files of several users");
  }
  static HostOptions options(mode_t root_mode) {
    HostOptions result;
    result.chown_to_caller = true;
    result.root_mode = root_mode;
    return result;
  }
  static mode_t mode(Host& host, const std::string& path) {
    const auto found = host.look_up(path);
    return found ? found->attributes.mode & 07777 : mode_t{0};
  }

  std::shared_ptr<remote::MemoryCluster> cluster = remote::make_memory_cluster();
};

TEST_F(CommonFiles, AreShownByTheRootAndKeepTheirOwnModeOnTheDisk) {
  Host a(cluster, options(01777));
  a.user = kOne;
  const std::string code = code_name("code");
  const std::string directory = code.substr(1, 2);
  ASSERT_TRUE(a.make_directory("locks", 0700));
  ASSERT_TRUE(a.create("locks/x.lock", "", 0600));
  ASSERT_TRUE(a.make_directory(directory, 0700));
  ASSERT_TRUE(a.publish_file(directory + "/" + code + ".py", "print()", 0600));
  ASSERT_TRUE(a.make_directory("mine", 0700));
  ASSERT_TRUE(a.create("mine/x.lock", "", 0600));
  EXPECT_EQ(mode(a, "locks"), 0777U);
  EXPECT_EQ(mode(a, "locks/x.lock"), 0666U);
  EXPECT_EQ(mode(a, directory), 0777U);
  EXPECT_EQ(mode(a, directory + "/" + code + ".py"), 0644U);
  EXPECT_EQ(mode(a, "mine"), 0700U);
  EXPECT_EQ(mode(a, "mine/x.lock"), 0600U);
  const auto own =
      vfs::file_owner_in(open_at(AT_FDCWD, a.directory / "local/view", O_RDONLY | O_DIRECTORY)->get(), "locks").value();
  ASSERT_TRUE(own);
  EXPECT_EQ(own->mode & 07777, 0700U);
  EXPECT_EQ(own->uid, kOne);
}

TEST_F(CommonFiles, FollowAChmodOfTheRoot) {
  Host a(cluster, options(0755));
  a.user = kOne;
  ASSERT_TRUE(a.make_directory("locks", 0700));
  EXPECT_EQ(mode(a, "locks"), 0755U);
  vfs::AttributeChange change;
  change.mode = 0777;
  ASSERT_TRUE(a.attributes().set_attributes(vfs::kRootNode, change, {0, 0, own_pid()}));
  EXPECT_EQ(mode(a, "locks"), 0777U);
  a.take_over();
  EXPECT_EQ(mode(a, "locks"), 0777U) << "for the next worker too";
}

TEST_F(CommonFiles, AreThoseOfADirectoryThatGotItsNameByARename) {
  Host a(cluster, options(01777));
  a.user = kOne;
  const std::string key = "triton/0/" + triton_key_of("kernel");
  const std::string staging = "triton/0/tmp.0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0";
  ASSERT_TRUE(a.make_directories("triton/0"));
  ASSERT_TRUE(a.make_directory(staging, 0700));
  ASSERT_TRUE(a.create(staging + "/k.cubin", "cubin", 0600));
  EXPECT_EQ(mode(a, staging), 0700U) << "of one process until it has its name";
  ASSERT_TRUE(a.rename(staging, key));
  EXPECT_EQ(mode(a, key), 0777U);
  EXPECT_EQ(mode(a, key + "/k.cubin"), 0644U);
}

/// Whichever of its names is known: the mode belongs to the inode.
TEST_F(CommonFiles, KeepTheirModeWithASecondName) {
  Host a(cluster, options(01777));
  a.user = kOne;
  const std::string path = in_code_directory(code_name("linked")) + ".py";
  ASSERT_TRUE(a.publish_file(path, "print()", 0600));
  EXPECT_EQ(mode(a, path), 0644U);
  const auto found = a.look_up(path);
  ASSERT_TRUE(found);
  ASSERT_TRUE(a.names().link(found->node, vfs::kRootNode, "second", {kOne, kOne, own_pid()}));
  EXPECT_EQ(mode(a, path), 0600U);
  EXPECT_EQ(mode(a, "second"), 0600U);
  ASSERT_TRUE(a.unlink("second"));
  EXPECT_EQ(mode(a, path), 0644U);
}

TEST_F(CommonFiles, KeepTheModeThatSomebodyChose) {
  Host a(cluster, options(01777));
  a.user = kOne;
  const std::string path = in_code_directory(code_name("chosen")) + ".py";
  ASSERT_TRUE(a.publish_file(path, "print()", 0600));
  ASSERT_TRUE(a.make_directory("locks", 0700));
  ASSERT_TRUE(a.create("locks/x.lock", "", 0600));
  const auto chmod = [&](const std::string& name, mode_t mode) {
    vfs::AttributeChange change;
    change.mode = mode;
    const auto changed = a.attributes().set_attributes(a.look_up(name)->node, change, {kOne, kOne, own_pid()});
    return changed ? changed->mode & 07777 : mode_t{0};
  };
  EXPECT_EQ(chmod(path, 0600), 0600U);
  EXPECT_EQ(chmod("locks/x.lock", 0644), 0666U) << "filelock sets this mode whoever else is to take the lock";
  EXPECT_EQ(chmod("locks", 01755), 01755U);
  ASSERT_TRUE(a.sync());
  a.restart();
  EXPECT_EQ(mode(a, path), 0600U);
  EXPECT_EQ(mode(a, "locks"), 01755U);
  ASSERT_TRUE(a.publish_file(path, "print(2)", 0600));
  EXPECT_EQ(mode(a, path), 0644U) << "another file";
}

TEST_F(CommonFiles, OfTheClusterLieInDirectoriesWithoutAStickyBit) {
  const std::string path = in_code_directory(code_name("shared")) + ".py";
  Host b(cluster);
  ASSERT_TRUE(b.publish_file(path, "print()"));
  ASSERT_TRUE(b.sync());
  Host a(cluster, options(01777));
  ASSERT_TRUE(a.wait_for_entry(path));
  EXPECT_EQ(mode(a, path.substr(0, 2)), 0777U);
  EXPECT_EQ(mode(a, path), 0644U);
  a.user = kOther;
  ASSERT_TRUE(a.publish_file(path, "print(2)", 0600)) << "the directory is on the disk now";
  EXPECT_EQ(mode(a, path.substr(0, 2)), 0777U);
  EXPECT_EQ(mode(a, path), 0644U);
}

}  // namespace
}  // namespace inductorfs::testing
