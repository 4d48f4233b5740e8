// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/clock.h"

#include <gtest/gtest.h>

#include "support/fake_clock.h"

namespace inductorfs {
namespace {

TEST(Deadline, LeftIsNeverNegative) {
  EXPECT_EQ(Deadline(std::chrono::steady_clock::now() - std::chrono::hours(1)).left(), Milliseconds(0));
  EXPECT_TRUE(Deadline(std::chrono::steady_clock::now() - std::chrono::hours(1)).passed());
}

TEST(Deadline, LeftIsRoundedUpSoThatPollDoesNotSpin) {
  const auto deadline = Deadline(std::chrono::steady_clock::now() + std::chrono::hours(1));
  EXPECT_EQ(deadline.left(), std::chrono::hours(1)) << "an hour less some microseconds must still count as an hour";
  EXPECT_FALSE(deadline.passed());
}

TEST(Deadline, EarlierNeverMovesItLater) {
  const Deadline soon = Deadline::after(Milliseconds(5));
  EXPECT_EQ(soon.earlier(std::chrono::hours(1)).at(), soon.at());
  const Deadline late = Deadline::after(std::chrono::hours(1));
  EXPECT_LT(late.earlier(Milliseconds(5)).at(), late.at());
}

TEST(SystemClock, SteadyTimeDoesNotGoBack) {
  const auto first = system_clock().now();
  EXPECT_GE(system_clock().now(), first);
  EXPECT_GT(system_clock().wall_now(), 1'700'000'000'000'000'000) << "nanoseconds since the epoch, later than 2023";
}

TEST(FakeClock, SettingTheWallLeavesTheSteadyTime) {
  testing::FakeClock clock;
  const auto steady = clock.now();
  clock.set_wall(5);
  EXPECT_EQ(clock.wall_now(), 5);
  EXPECT_EQ(clock.now(), steady);
  clock.advance(std::chrono::seconds(1));
  EXPECT_EQ(clock.wall_now(), 1'000'000'005);
  EXPECT_EQ(clock.now() - steady, std::chrono::seconds(1));
}

}  // namespace
}  // namespace inductorfs
