// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>

#include "inductorfs/base/clock.h"

namespace inductorfs::testing {

/// A clock that stands still until a test turns it. Safe for concurrent use.
class FakeClock final : public Clock {
 public:
  explicit FakeClock(WallNanoseconds wall = 1'800'000'000'000'000'000) : wall_(wall) {}

  [[nodiscard]] SteadyTime now() const override { return SteadyTime(std::chrono::nanoseconds(steady_.load())); }
  [[nodiscard]] WallNanoseconds wall_now() const override { return wall_.load(); }

  /// Time passes: both clocks go on.
  void advance(std::chrono::nanoseconds span) {
    steady_.fetch_add(span.count());
    wall_.fetch_add(span.count());
  }
  /// An operator or NTP sets the time of day; the steady clock does not notice.
  void set_wall(WallNanoseconds wall) { wall_.store(wall); }

 private:
  std::atomic<int64_t> steady_{1'000'000'000};
  std::atomic<WallNanoseconds> wall_;
};

}  // namespace inductorfs::testing
