// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>

#include "inductorfs/base/clock.h"

namespace inductorfs {

/// When something that several wait for showed its last sign of life. Safe for concurrent use.
class Progress {
 public:
  void note() { last_ = std::chrono::steady_clock::now().time_since_epoch().count(); }
  [[nodiscard]] SteadyTime last() const { return SteadyTime(SteadyTime::duration(last_.load())); }

 private:
  std::atomic<SteadyTime::rep> last_ = 0;
};

/// What somebody who waits will bear: `total` in all, and `quiet` since he began or since the last progress. It is one
/// for all the steps of what he waits for, so that ten steps are not ten times as long. Needs external synchronisation.
class Budget {
 public:
  /// `since`: when he began to wait. `common`: progress of all who wait at the same counter; it must outlive this.
  Budget(Deadline total, Milliseconds quiet, SteadyTime since, Progress* common = nullptr)
      : total_(total), quiet_(quiet), last_(since), common_(common) {}

  void progress() {
    last_ = std::chrono::steady_clock::now();
    if (common_ != nullptr) common_->note();
  }
  /// His turn has come. While he stood in line, progress of those before him counted as his.
  void take_turn() {
    if (common_ != nullptr) last_ = std::max(last_, common_->last());
  }
  /// The end of his patience unless there is progress.
  [[nodiscard]] Deadline end() const { return Deadline(std::min(total_.at(), last_ + quiet_)); }
  /// The same while he stands in line.
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
