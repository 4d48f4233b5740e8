// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <random>

#include "inductorfs/base/clock.h"

namespace inductorfs::catalog {

/// Waits that grow from failure to failure. Each wait is shortened or stretched by chance, so that a thousand hosts do
/// not come back in step after an outage. Needs external synchronisation.
class Backoff {
 public:
  static constexpr Milliseconds kFirst{100};
  static constexpr Milliseconds kMost{30'000};

  [[nodiscard]] Milliseconds next() {
    const Milliseconds span = jittered(next_);
    next_ = std::min(next_ * 2, kMost);
    return span;
  }
  void reset() { next_ = kFirst; }
  /// Returns a time between 3/4 and 5/4 of `span`.
  [[nodiscard]] Milliseconds jittered(Milliseconds span) {
    return Milliseconds(static_cast<Milliseconds::rep>(static_cast<double>(span.count()) * spread_(random_)));
  }

 private:
  Milliseconds next_ = kFirst;
  std::minstd_rand random_{std::random_device{}()};
  std::uniform_real_distribution<double> spread_{0.75, 1.25};
};

}  // namespace inductorfs::catalog
