// SPDX-License-Identifier: Apache-2.0
#include "vfs/write/refusals.h"

#include <gtest/gtest.h>

namespace inductorfs::vfs {
namespace {

using Lines = std::vector<std::string>;

TEST(Refusals, OneFileThatIsRefusedAgainAndAgainPushesOutNoOther) {
  Counters counters;
  Refusals refusals(counters);
  refusals.note("a note");
  refusals.add("theirs", "too large");
  for (int i = 0; i < 100; ++i) refusals.add("mine", "no form");
  EXPECT_EQ(refusals.lines(), (Lines{"a note", "theirs: too large", "mine: no form"}));
  EXPECT_EQ(counters.get("seal.refused").get(), 2U);
}

TEST(Refusals, ThePathThatWasRefusedLastComesLastWithItsLastReason) {
  Counters counters;
  Refusals refusals(counters);
  refusals.add("a", "no form");
  refusals.add("b", "no form");
  refusals.add("a", "too large");
  EXPECT_EQ(refusals.lines(), (Lines{"b: no form", "a: too large"}));
  EXPECT_EQ(counters.get("seal.refused").get(), 3U) << "another reason";
}

TEST(Refusals, KeepsTheLastTwenty) {
  Counters counters;
  Refusals refusals(counters);
  for (int i = 0; i < 25; ++i) refusals.add(std::to_string(i), "no form");
  const Lines lines = refusals.lines();
  ASSERT_EQ(lines.size(), 20U);
  EXPECT_EQ(lines.front(), "5: no form");
  EXPECT_EQ(lines.back(), "24: no form");
  EXPECT_EQ(counters.get("seal.refused").get(), 25U);
}

}  // namespace
}  // namespace inductorfs::vfs
