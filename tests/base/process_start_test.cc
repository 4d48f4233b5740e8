// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/process_start.h"

#include <gtest/gtest.h>

#include <string>

namespace inductorfs {
namespace {

/// proc_pid_stat(5), with this state and so many threads.
std::string stat_of(char state, int threads) {
  return std::string("4711 (a ) (b) ") + state + " 42 4711 4711 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 " +
         std::to_string(threads) + " 0 123456 0 0 18446744073709551615\n";
}

TEST(ProcessStart, IsReadBehindAnyName) {
  EXPECT_EQ(start_in_stat(stat_of('S', 1)), 123456U);
  EXPECT_EQ(parent_in_stat(stat_of('S', 1)), 42);
  EXPECT_FALSE(start_in_stat("4711 (a"));
  EXPECT_FALSE(parent_in_stat(""));
}

TEST(ProcessStart, AZombieHasEndedUnlessOtherThreadsRun) {
  EXPECT_TRUE(is_ended_in_stat(stat_of('Z', 1)));
  EXPECT_TRUE(is_ended_in_stat(stat_of('X', 0)));
  EXPECT_FALSE(is_ended_in_stat(stat_of('Z', 2)));
  EXPECT_FALSE(is_ended_in_stat(stat_of('S', 1)));
  EXPECT_FALSE(is_ended_in_stat("4711 (Z)"));
  EXPECT_FALSE(is_ended_in_stat(""));
}

TEST(ProcessStart, TellsTheProcessorTimeOfAProcessWithItsEndedChildren) {
  EXPECT_EQ(ticks_in_stat("1 (a) b) S 2 3 3 0 -1 0 7 8 9 10 1 20 300 4000 20 0 1 0 5 0 0"), 4321U);
  EXPECT_FALSE(ticks_in_stat("1 (a) S 2 3 3 0 -1 0 7 8 9 10 1 20 300"));
}

TEST(ProcessStart, TellsTheProcessorTimeOfAThreadWithoutThatOfChildren) {
  EXPECT_EQ(own_ticks_in_stat("1 (a) b) S 2 3 3 0 -1 0 7 8 9 10 1 20 300 4000 20 0 1 0 5 0 0"), 21U);
  EXPECT_FALSE(own_ticks_in_stat("1 (a) S 2 3 3 0 -1 0 7 8 9 10 1"));
}

TEST(ProcessStart, FindsALineOfTheStatusWhateverTheProcessIsCalled) {
  const std::string status = "Name:\tUid: 7\nTgid:\t4711\nUid:\t1000\t1001\t1002\t1003\nGroups:\t \nCapEff:\t00ff\n";
  EXPECT_EQ(line_in_status(status, "Uid"), "1000\t1001\t1002\t1003");
  EXPECT_EQ(line_in_status(status, "CapEff"), "00ff");
  EXPECT_EQ(line_in_status(status, "Groups"), "");
  EXPECT_EQ(line_in_status(status, "Gid"), "");
  EXPECT_EQ(number_in_status(status, "Uid"), 1000U);
  EXPECT_EQ(number_in_status(status, "Tgid"), 4711U);
  EXPECT_FALSE(number_in_status(status, "Groups"));
  EXPECT_FALSE(number_in_status("", "Uid"));
}

TEST(ProcessStart, TellsWhoWaitsForADiskFromWhoRuns) {
  EXPECT_TRUE(waits_for_disk_in_stat(stat_of('D', 1)));
  for (const char state : {'S', 'R', 'T'}) EXPECT_FALSE(waits_for_disk_in_stat(stat_of(state, 1))) << state;
  EXPECT_FALSE(waits_for_disk_in_stat("1 (D)"));
}

}  // namespace
}  // namespace inductorfs
