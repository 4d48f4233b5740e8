// SPDX-License-Identifier: Apache-2.0
#define FUSE_USE_VERSION 314
#include "../../src/fuse/convert.h"

#include <fuse_lowlevel.h>
#include <gtest/gtest.h>

namespace inductorfs::fuse {
namespace {

TEST(Convert, CarriesEveryAttribute) {
  vfs::Attributes attributes;
  attributes.inode_number = 77;
  attributes.mode = S_IFREG | 0640;
  attributes.links = 3;
  attributes.uid = 5;
  attributes.gid = 6;
  attributes.device = 9;
  attributes.size = 4097;
  attributes.blocks = 9;
  attributes.accessed = {1, 2};
  attributes.modified = {3, 4};
  attributes.changed = {5, 6};

  const struct stat out = to_stat(attributes);

  EXPECT_EQ(out.st_ino, 77U);
  EXPECT_EQ(out.st_mode, static_cast<mode_t>(S_IFREG | 0640));
  EXPECT_EQ(out.st_nlink, 3U);
  EXPECT_EQ(out.st_uid, 5U);
  EXPECT_EQ(out.st_gid, 6U);
  EXPECT_EQ(out.st_rdev, 9U);
  EXPECT_EQ(out.st_size, 4097);
  EXPECT_EQ(out.st_blocks, 9);
  EXPECT_EQ(out.st_atim.tv_nsec, 2);
  EXPECT_EQ(out.st_mtim.tv_sec, 3);
  EXPECT_EQ(out.st_ctim.tv_nsec, 6);
}

TEST(Convert, ChangesOnlyWhatIsMeant) {
  struct stat attributes {};
  attributes.st_mode = S_IFREG | 04755;
  attributes.st_size = 12;

  const auto change = to_change(attributes, FUSE_SET_ATTR_MODE);

  EXPECT_EQ(change.mode, mode_t{04755});
  EXPECT_FALSE(change.size);
  EXPECT_FALSE(change.uid);
  EXPECT_FALSE(change.modified);
  EXPECT_FALSE(change.modified_now);
}

TEST(Convert, LetsNowWinOverAGivenTime) {
  struct stat attributes {};
  attributes.st_mtim = {100, 1};
  attributes.st_atim = {200, 2};

  const auto change =
      to_change(attributes, FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW | FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_SIZE);

  EXPECT_TRUE(change.modified_now);
  EXPECT_FALSE(change.modified);
  EXPECT_EQ(change.accessed, (vfs::Timestamp{200, 2}));
  EXPECT_EQ(change.size, 0U);
}

TEST(Convert, ClearsPrivilegesAsLocalFileSystemsDo) {
  EXPECT_EQ(without_privileges(06755), mode_t{0755});
  EXPECT_EQ(without_privileges(02745), mode_t{02745}) << "set-group-id without group execution marks locking";
  EXPECT_EQ(without_privileges(01777), mode_t{01777});
}

}  // namespace
}  // namespace inductorfs::fuse
