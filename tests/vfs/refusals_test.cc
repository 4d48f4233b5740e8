// SPDX-License-Identifier: Apache-2.0
#include "vfs/origin/refusals.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace inductorfs::vfs {
namespace {

using Lines = std::vector<std::string>;
constexpr uid_t kAnn = 1000;
constexpr uid_t kBob = 1001;

long lines_of(const Refusals& refusals, const std::string& beginning) {
  const Lines lines = refusals.lines();
  return std::ranges::count_if(lines, [&](const std::string& line) { return line.starts_with(beginning); });
}

TEST(Refusals, OneFileThatIsRefusedAgainAndAgainPushesOutNoOther) {
  Counters counters;
  Refusals refusals(counters);
  refusals.note("a note", kAnn);
  refusals.add("theirs", "too large", kAnn);
  for (int i = 0; i < 100; ++i) refusals.add("mine", "no form", kAnn);
  EXPECT_EQ(refusals.lines(), (Lines{"a note", "theirs: too large", "mine: no form"}));
  EXPECT_EQ(counters.get("seal.refused").get(), 2U);
}

TEST(Refusals, ThePathThatWasRefusedLastComesLastWithItsLastReason) {
  Counters counters;
  Refusals refusals(counters);
  refusals.add("a", "no form", kAnn);
  refusals.add("b", "no form", kAnn);
  refusals.add("a", "too large", kAnn);
  EXPECT_EQ(refusals.lines(), (Lines{"b: no form", "a: too large"}));
  EXPECT_EQ(counters.get("seal.refused").get(), 3U) << "another reason";
}

TEST(Refusals, KeepsTheLastTwenty) {
  Counters counters;
  Refusals refusals(counters);
  for (int i = 0; i < 25; ++i) refusals.add(std::to_string(i), "no form", kAnn);
  const Lines lines = refusals.lines();
  ASSERT_EQ(lines.size(), 20U);
  EXPECT_EQ(lines.front(), "5: no form");
  EXPECT_EQ(lines.back(), "24: no form");
  EXPECT_EQ(counters.get("seal.refused").get(), 25U);
}

TEST(Refusals, ManyFilesOfOneUserPushOutNoLineOfAnother) {
  Counters counters;
  Refusals refusals(counters);
  refusals.add("theirs/1", "no form", kBob);
  refusals.note("theirs/2: a note", kBob);
  refusals.note("disk: nobody's", std::nullopt);
  for (int i = 0; i < 100; ++i) refusals.add("mine/" + std::to_string(i), "no form", kAnn);
  EXPECT_EQ(lines_of(refusals, "theirs/"), 2);
  EXPECT_EQ(lines_of(refusals, "disk"), 1);
  EXPECT_EQ(lines_of(refusals, "mine/"), 17);
  EXPECT_EQ(refusals.lines().back(), "mine/99: no form") << "the most recent ones of each user";
  EXPECT_EQ(counters.get("seal.refused").get(), 101U);
}

TEST(Refusals, UsersWithManyFilesHaveEquallyManyLines) {
  Counters counters;
  Refusals refusals(counters);
  for (int i = 0; i < 100; ++i) refusals.add("mine/" + std::to_string(i), "no form", kAnn);
  for (int i = 0; i < 100; ++i) refusals.add("theirs/" + std::to_string(i), "no form", kBob);
  EXPECT_EQ(lines_of(refusals, "mine/"), 10);
  EXPECT_EQ(lines_of(refusals, "theirs/"), 10);
  EXPECT_EQ(lines_of(refusals, "mine/9"), 10) << "90 to 99";
}

TEST(Refusals, NotesThatOneUserCausesKeepNoLineOfAnotherAway) {
  Counters counters;
  Refusals refusals(counters);
  for (int i = 0; i < 100; ++i) refusals.note("mine/" + std::to_string(i), kAnn);
  EXPECT_EQ(refusals.lines().front(), "mine/0") << "the first ones are enough";
  EXPECT_EQ(refusals.lines().back(), "mine/19");
  refusals.note("theirs/note", kBob);
  refusals.add("theirs/file", "no form", kBob);
  EXPECT_EQ(lines_of(refusals, "theirs/"), 2);
  EXPECT_EQ(lines_of(refusals, "mine/"), 18);
}

}  // namespace
}  // namespace inductorfs::vfs
