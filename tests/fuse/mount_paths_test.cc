// SPDX-License-Identifier: Apache-2.0
#include "../../src/fuse/mount_paths.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "../../src/fuse/mount_users.h"
#include "support/temporary_directory.h"

namespace inductorfs::fuse {
namespace {

constexpr const char* kTable =
    "36 27 0:33 / /mnt/a\\040b\\134c rw - fuse.inductorfs inductorfs rw,user_id=0\n"
    "37 36 0:34 / /mnt/a\\040b\\134c rw - tmpfs tmpfs rw\n";

TEST(MountTable, FindsTheUppermostOfSeveral) {
  const auto table = parse_mount_table(kTable);
  EXPECT_EQ(find_mount_at(table, "/mnt/a b\\c")->type, "tmpfs");
  EXPECT_EQ(find_mount_at(table, "/mnt"), nullptr);
  EXPECT_EQ(find_mount_at(table, "/mnt/a"), nullptr);
}

TEST(MountTable, KnowsWhatLiesBelow) {
  EXPECT_TRUE(is_within("/a/b", "/a/b"));
  EXPECT_TRUE(is_within("/a/b/c (deleted)", "/a/b"));
  EXPECT_FALSE(is_within("/a/bc", "/a/b"));
  EXPECT_FALSE(is_within("/a", "/a/b"));
  EXPECT_TRUE(is_within("/a", "/"));
  EXPECT_FALSE(is_within("socket:[1]", "/"));
}

TEST(MountTable, SpellsAPathAsTheKernelDoes) {
  const testing::TemporaryDirectory directory;
  ASSERT_EQ(symlink(directory.path().c_str(), (directory / "self").c_str()), 0);
  const std::string real = resolved_mountpoint(directory.path());

  EXPECT_EQ(resolved_mountpoint(directory / "self//"), real);
  EXPECT_EQ(resolved_mountpoint("/nowhere/at/all/"), "/nowhere/at/all");
  EXPECT_EQ(resolved_mountpoint("/"), "/");
}

TEST(MountTable, HasTheProcFileSystemOfThisHost) {
  const auto table = read_mount_table();
  EXPECT_EQ(find_mount_at(table, "/proc")->type, "proc");
}

TEST(MountUsers, AreNamedUpToALimit) {
  MountUsers users;
  for (int i = 1; i <= 10; ++i) users.found.push_back({i, "cmd" + std::to_string(i), "open file"});

  const std::string text = describe_users(users);

  EXPECT_NE(text.find("pid 1 (cmd1, open file), pid 2"), std::string::npos) << text;
  EXPECT_NE(text.find("and 2 more"), std::string::npos) << text;
  EXPECT_EQ(describe_users({}), "");
}

TEST(MountUsers, IncludeThisProcessForTheFileSystemOfItsProgram) {
  const auto table = read_mount_table();
  const MountEntry* const root = find_mount_at(table, "/");
  ASSERT_NE(root, nullptr);
  bool found = false;
  for (const MountUser& user : find_mount_users({&*root, 1}).found) found = found || user.pid == getpid();
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace inductorfs::fuse
