// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/clock.h"

#include <algorithm>

namespace inductorfs {
namespace {

/// Immutable after construction.
class SystemClock final : public Clock {
 public:
  SteadyTime now() const override { return std::chrono::steady_clock::now(); }
  WallNanoseconds wall_now() const override {
    const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(since_epoch).count();
  }
};

}  // namespace

const Clock& system_clock() {
  static const SystemClock clock;
  return clock;
}

Milliseconds Deadline::left() const {
  const auto span = std::chrono::ceil<Milliseconds>(at_ - std::chrono::steady_clock::now());
  return std::max(span, Milliseconds::zero());
}

Deadline Deadline::earlier(Milliseconds span) const { return Deadline(std::min(at_, after(span).at_)); }

}  // namespace inductorfs
