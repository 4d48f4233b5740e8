// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>

#include "inductorfs/base/clock.h"

namespace inductorfs {

/// The time at which a thing that several callers wait for last made progress. Safe for concurrent use.
class Progress {
 public:
  void note() { last_ = std::chrono::steady_clock::now().time_since_epoch().count(); }
  [[nodiscard]] SteadyTime last() const { return SteadyTime(SteadyTime::duration(last_.load())); }

 private:
  std::atomic<SteadyTime::rep> last_ = 0;
};

/// The time budget of one waiting caller: it ends at `total`, or earlier, when `quiet` has passed since the caller
/// began to wait or since the last progress. One budget covers all the steps that the caller waits for, so that ten
/// steps do not take ten times as long. Needs external synchronisation.
class Budget {
 public:
  /// `since` is when the caller began to wait. `common`, if set, is the progress of all callers that wait in the same
  /// line; it must outlive this object.
  Budget(Deadline total, Milliseconds quiet, SteadyTime since, Progress* common = nullptr)
      : total_(total), quiet_(quiet), last_(since), common_(common) {}

  void progress() {
    last_ = std::chrono::steady_clock::now();
    if (common_ != nullptr) common_->note();
  }
  /// Notes that the caller's turn has come. While it stood in line, progress of those before it counted as its own.
  void take_turn() {
    if (common_ != nullptr) last_ = std::max(last_, common_->last());
  }
  /// Returns when the budget ends unless there is progress.
  [[nodiscard]] Deadline end() const { return Deadline(std::min(total_.at(), last_ + quiet_)); }
  /// Returns the same while the caller stands in line.
  [[nodiscard]] Deadline end_in_line() const {
    const SteadyTime last = common_ == nullptr ? last_ : std::max(last_, common_->last());
    return Deadline(std::min(total_.at(), last + quiet_));
  }
  [[nodiscard]] Deadline total() const { return total_; }
  [[nodiscard]] Milliseconds quiet() const { return quiet_; }

 private:
  const Deadline total_;
  const Milliseconds quiet_;
  SteadyTime last_;
  Progress* const common_;
};

}  // namespace inductorfs
