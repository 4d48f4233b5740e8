// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/fail_point.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "support/temporary_directory.h"

namespace inductorfs {
namespace {

class FailPoint : public ::testing::Test {
 protected:
  ~FailPoint() override { (void)arm_fail_points(""); }

  [[noreturn]] static void reach(const std::string& list, int times) {
    if (!arm_fail_points(list)) ::_exit(9);
    for (int i = 0; i < times; ++i) fail_point("part.step");
    ::_exit(0);
  }
};

TEST_F(FailPoint, DoesNothingUnlessItIsArmed) {
  fail_point("part.step");
  EXPECT_FALSE(fail_point_error("part.call"));
  EXPECT_EXIT(reach("part.other", 3), ::testing::ExitedWithCode(0), "");
}

TEST_F(FailPoint, KillsAtTheNameThatIsArmed) {
  EXPECT_EXIT(reach("part.step", 1), ::testing::KilledBySignal(SIGKILL), "");
  EXPECT_EXIT(reach("part.other,part.step", 1), ::testing::KilledBySignal(SIGKILL), "");
}

TEST_F(FailPoint, KillsTheNthTime) {
  EXPECT_EXIT(reach("part.step:3", 2), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(reach("part.step:3", 3), ::testing::KilledBySignal(SIGKILL), "");
}

TEST_F(FailPoint, KillsOnceWhereThatIsWanted) {
  testing::TemporaryDirectory directory;
  const auto once = [&] {
    ::setenv("INDUCTORFS_FAIL_POINT_ONCE", (directory / "killed").c_str(), 1);
    reach("part.step", 1);
  };
  EXPECT_EXIT(once(), ::testing::KilledBySignal(SIGKILL), "");
  EXPECT_EXIT(once(), ::testing::ExitedWithCode(0), "");
}

TEST_F(FailPoint, LetsACallFailFromTheNthTimeOn) {
  ASSERT_TRUE(arm_fail_points("part.call=ENOSPC:2"));
  EXPECT_FALSE(fail_point_error("part.call"));
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(fail_point_error("part.call"));
    EXPECT_EQ(errno, ENOSPC);
  }
  fail_point("part.call");  // a kill is another thing
}

TEST_F(FailPoint, WhatIsNoListIsSaid) {
  for (const char* list : {"a.b:0", "a.b:x", "a.b=ENONE", ":1", "a.b,,c.d"}) {
    const auto armed = arm_fail_points(list);
    ASSERT_FALSE(armed) << list;
    EXPECT_EQ(armed.error().code(), ErrorCode::kInvalid);
    EXPECT_NE(armed.error().what().find(list), std::string::npos);
  }
}

}  // namespace
}  // namespace inductorfs
