// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/mount_table.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <string>

#include "inductorfs/base/fd.h"

namespace inductorfs {
namespace {

constexpr const char* kTable =
    "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
    "27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw,discard\n"
    "36 27 0:33 / /mnt/a\\040b\\134c rw - fuse.inductorfs inductor\\011fs rw,user_id=1000,group_id=1000\n"
    "37 36 0:34 / /mnt/a\\040b\\134c rw - tmpfs  rw\n"
    "38 27 0:35 /precompiled_headers /mnt/x rw - fuse.inductorfs\n"
    "short line\n"
    "\n"
    "39 27 0:36 / /mnt/nodash rw rw rw rw rw\n"
    "40 27 0:36 / /mnt/notype rw -\n";

TEST(MountTable, ReadsEachWholeLine) {
  const auto table = parse_mount_table(kTable);

  ASSERT_EQ(table.size(), 5U);
  EXPECT_EQ(table[1].device, "254:0");
  EXPECT_EQ(table[1].root, "/");
  EXPECT_EQ(table[1].mount_point, "/");
  EXPECT_EQ(table[1].type, "ext4");
  EXPECT_EQ(table[1].source, "/dev/vda");
  EXPECT_EQ(table[2].super_options, "rw,user_id=1000,group_id=1000");
  EXPECT_EQ(table[4].root, "/precompiled_headers");
  EXPECT_EQ(table[4].source, "");
}

TEST(MountTable, SkipsALineThatIsTooLongAndNoOther) {
  const std::string far = "41 27 0:37 / /mnt/" + std::string(200'000, 'x') + " rw - fuse.inductorfs far rw\n";
  const Fd file(::memfd_create("table", 0));
  ASSERT_TRUE(write_full(file.get(), std::string(kTable) + far + kTable).has_value());
  use_mount_table(Fd(::fcntl(file.get(), F_DUPFD_CLOEXEC, 0)));
  const auto table = read_mount_table();
  use_mount_table(Fd());
  EXPECT_EQ(table.size(), 10U);
}

TEST(MountTable, KnowsOurs) {
  const auto table = parse_mount_table(kTable);
  EXPECT_FALSE(table[1].is_ours());
  EXPECT_TRUE(table[2].is_ours());
}

TEST(MountTable, UndoesTheKernelsOctalEscapes) {
  const auto table = parse_mount_table(kTable);
  EXPECT_EQ(table[2].mount_point, "/mnt/a b\\c");
  EXPECT_EQ(table[2].source, "inductor\tfs");
}

TEST(MountTable, TakesAnEmptySourceForOne) {
  const auto table = parse_mount_table(kTable);
  EXPECT_EQ(table[3].source, "");
  EXPECT_EQ(table[3].super_options, "rw");
}

TEST(MountTable, FindsTheUppermostOfSeveral) {
  const auto table = parse_mount_table(kTable);
  EXPECT_EQ(find_mount_at(table, "/mnt/a b\\c")->type, "tmpfs");
  EXPECT_EQ(find_mount_at(table, "/mnt"), nullptr);
  EXPECT_EQ(find_mount_at(table, "/mnt/a"), nullptr);
}

TEST(MountTable, FindsTheUppermostWhenAnotherWasPutBeneathIt) {
  const auto table = parse_mount_table(
      "42 44 0:39 / /mnt/a rw - fuse.inductorfs inductorfs rw\n"
      "44 27 0:40 / /mnt/a rw - fuse.inductorfs inductorfs rw\n");
  EXPECT_EQ(find_mount_at(table, "/mnt/a")->id, 42U);
}

TEST(MountTable, IsThatOfThisProcess) {
  const auto table = read_mount_table();
  const MountEntry* proc = find_mount_at(table, "/proc");
  ASSERT_NE(proc, nullptr);
  EXPECT_EQ(proc->type, "proc");
}

}  // namespace
}  // namespace inductorfs
