// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "inductorfs/base/activity.h"
#include "inductorfs/base/clock.h"

namespace inductorfs::mount {

/// What the kernel tells about a thread of this process.
struct ThreadSigns {
  uint64_t switches = 0;         ///< how often it gave up its core: each wait for a disk, a lock or a timer counts
  uint64_t ticks = 0;            ///< clock ticks of computing
  bool waits_in_kernel = false;  ///< it sleeps uninterruptibly: usually for the disk
  [[nodiscard]] bool same_work(const ThreadSigns& other) const {
    return switches == other.switches && ticks == other.ticks;
  }
};
[[nodiscard]] ThreadSigns signs_of(pid_t thread);

/// A thread that has made no progress for a long time. Immutable value.
struct StuckThread {
  AtWork work;
  std::chrono::seconds span{};
  bool waits_for_disk = false;
  /// Returns "the thread seal has made no progress for 20 s: it seals ab/cab.py".
  [[nodiscard]] std::string to_string() const;
};

/// Finds the threads at work (Activity) in which the kernel sees no progress: neither computing nor another wait. A
/// slow disk therefore counts as progress, whatever a thread has to do there, and no thread has to count its steps. A
/// thread in an endless loop is not found. Needs external synchronisation.
class ThreadWatch {
 public:
  /// A `patience` of 0 disables it.
  explicit ThreadWatch(Milliseconds patience) : patience_(patience) {}
  [[nodiscard]] std::vector<StuckThread> look(SteadyTime now, const std::vector<AtWork>& at_work);

 private:
  struct Seen {
    ThreadSigns signs;
    SteadyTime progress;
    bool told = false;
  };
  const Milliseconds patience_;
  std::map<uint64_t, Seen> seen_;  ///< by AtWork::number
};

}  // namespace inductorfs::mount
