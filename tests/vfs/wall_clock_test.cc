// SPDX-License-Identifier: Apache-2.0
// The time of day of this host jumps, as an operator or NTP may make it, under a mount whose Redis fails and comes
// back.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>

#include "support/lacks.h"
#include "vfs/redis_bed.h"

namespace {

std::atomic<time_t> wall_offset_seconds = 0;

}  // namespace

// In place of the C library's, for every part of this program: only the time of day is turned.
extern "C" int clock_gettime(clockid_t clock, struct timespec* out) noexcept {
  const long failed = ::syscall(SYS_clock_gettime, clock, out);
  if (failed == 0 && clock == CLOCK_REALTIME) out->tv_sec += wall_offset_seconds;
  return static_cast<int>(failed);
}

namespace inductorfs::testing {
namespace {

constexpr time_t kYear = 365 * 24 * 3600;

TEST(WallClock, MayJumpUnderAMountInAnyStateOfItsRedis) {
  if (!RedisServer::available()) INDUCTORFS_LACKS("redis-server");
  const auto real = std::chrono::system_clock::now();
  RedisBed bed({});
  int round = 0;
  for (const time_t offset : {10 * kYear, -20 * kYear, time_t{0}}) {
    const std::string name = "round " + std::to_string(++round);
    const std::string before = bed.publish(*bed.a, name + ", before the jump");
    ASSERT_TRUE(bed.a->sync());
    ASSERT_TRUE(bed.b->wait_for_entry(before));
    bed.proxy->set(FaultProxy::Mode::kSilent);
    EXPECT_FALSE(RedisBed::look_up(*bed.b, before).found);

    wall_offset_seconds = offset;

    const auto shown = std::chrono::duration_cast<std::chrono::hours>(std::chrono::system_clock::now() - real).count();
    ASSERT_NEAR(static_cast<double>(shown), static_cast<double>(offset) / 3600, 2) << "the clock was not turned";
    EXPECT_LT(RedisBed::look_up(*bed.b, before).took, Milliseconds(1750));
    const std::string mine = bed.publish(*bed.b, name + ", under another date");
    bed.proxy->set(FaultProxy::Mode::kNone);
    EXPECT_TRUE(eventually([&] { return bed.b->read(before).value_or("absent") == name + ", before the jump"; }));
    EXPECT_TRUE(bed.a->wait_for_entry(mine));
    EXPECT_EQ(bed.a->read(mine).value_or("absent"), name + ", under another date");
    bed.b->restart();
    EXPECT_TRUE(bed.b->exists(before));
  }
}

}  // namespace
}  // namespace inductorfs::testing
