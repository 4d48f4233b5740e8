// SPDX-License-Identifier: Apache-2.0
#include "vfs/nodes/entry_mode.h"

#include <gtest/gtest.h>

#include <string>

namespace inductorfs::vfs {
namespace {

mode_t shown(const std::string& suffix, uint32_t mode) {
  codec::Entry entry;
  entry.path = "aa/c" + std::string(51, 'a') + suffix;
  entry.mode = mode;
  return mode_of(entry);
}

TEST(EntryMode, IsTheWritersWhereEverybodyMayRead) {
  for (const mode_t mode : {0644U, 0444U}) EXPECT_EQ(shown(".py", mode), mode);
}

/// A writer with umask 0, or 002: what the owner's jobs load is not for others to change.
TEST(EntryMode, LetsNobodyWriteButTheOwner) {
  EXPECT_EQ(shown(".py", 0666), 0644U);
  EXPECT_EQ(shown(".py", 0664), 0644U);
  EXPECT_EQ(shown(".so", 0777), 0755U);
  EXPECT_EQ(shown(".py", 0466), 0444U);
}

/// A writer with umask 077: a job of another user on another host finds the name, so it must be able to open it.
TEST(EntryMode, LetsEverybodyReadWhateverTheWritersUmask) {
  EXPECT_EQ(shown(".py", 0600), 0644U);
  EXPECT_EQ(shown(".py", 0640), 0644U);
  EXPECT_EQ(shown(".py", 0400), 0444U);
  EXPECT_EQ(shown(".so", 0700), 0755U);
  EXPECT_EQ(shown(".so", 0500), 0555U);
  EXPECT_EQ(shown(".so", 0600), 0644U);
}

/// An index entry is anybody's.
TEST(EntryMode, LetsTheOwnerRead) {
  for (const mode_t mode : {0000U, 0044U, 0077U, 0200U, 0111U, 0300U}) EXPECT_EQ(shown(".py", mode), 0644U) << mode;
  EXPECT_EQ(shown(".so", 0), 0644U);
}

TEST(EntryMode, LetsBinariesAloneBeExecuted) {
  EXPECT_EQ(shown(".so", 0755), 0755U);
  EXPECT_EQ(shown(".py", 0755), 0644U);
  EXPECT_EQ(shown(".best_config", 0777), 0644U);
}

TEST(EntryMode, HasPermissionBitsOnly) {
  EXPECT_EQ(shown(".so", 06755), 0755U);
  EXPECT_EQ(shown(".so", 0100755), 0755U);
}

}  // namespace
}  // namespace inductorfs::vfs
