// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/places/own_mounts.h"

#include <gtest/gtest.h>

namespace inductorfs::places {
namespace {

constexpr const char* kTable =
    "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    "80 22 0:51 / /mnt/a\\040cache rw,nosuid,nodev shared:9 master:3 - fuse.inductorfs inductorfs "
    "rw,user_id=1000,group_id=1000\n"
    "81 22 0:51 /precompiled_headers /tmp/t/precompiled_headers rw - fuse.inductorfs inductorfs rw,user_id=1000\n"
    "82 22 0:60 / /mnt/other rw - tmpfs tmpfs rw\n"
    "83 82 0:61 / /mnt/other rw - fuse.inductorfs inductorfs rw,user_id=0\n"
    "a line that is none\n";

TEST(MountTable, FindsTheMountThatAPathLiesIn) {
  const auto table = parse_mount_table(kTable);

  EXPECT_EQ(find_mount_of(table, "/mnt/a cache/x/y")->device, "0:51");
  EXPECT_EQ(find_mount_of(table, "/mnt/a cache2")->device, "8:1");
  EXPECT_EQ(find_mount_of(table, "/mnt/other/z")->device, "0:61");
}

TEST(MountTable, LeadsFromABindToItsMount) {
  const auto table = parse_mount_table(kTable);
  const MountEntry* bind = find_mount_at(table, "/tmp/t/precompiled_headers");
  ASSERT_NE(bind, nullptr);

  const MountEntry* main_mount = find_main_mount(table, *bind);
  ASSERT_NE(main_mount, nullptr);
  EXPECT_EQ(main_mount->mount_point, "/mnt/a cache");

  MountEntry orphan = *bind;
  orphan.device = "0:99";
  EXPECT_EQ(find_main_mount(table, orphan), nullptr);
}

TEST(MountTable, ReadsThatOfThisProcess) {
  const auto table = read_mount_table();
  EXPECT_NE(find_mount_of(table, "/proc/self"), nullptr);
}

}  // namespace
}  // namespace inductorfs::places
