// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "inductorfs/base/clock.h"
#include "vfs/tree/key_directory.h"

namespace inductorfs::vfs {

/// Tells which processes wait: neither they nor their descendants have used a processor for a while, and no thread of
/// them runs, or waits for a disk. What cannot be seen counts as work. A thread that spins while it waits works.
/// Confined to one thread.
class WorkWatch {
 public:
  explicit WorkWatch(Milliseconds patience) : patience_(patience) {}

  /// Looks at these, and forgets all others. Returns those that have waited for the whole patience, as far as was
  /// looked. Blocks on /proc alone.
  [[nodiscard]] std::set<SetOwner> waiting_of(const std::vector<SetOwner>& processes);

 private:
  struct Seen {
    uint64_t ticks = 0;
    SteadyTime worked{};  ///< when it was seen to work last, or seen first
  };
  const Milliseconds patience_;
  std::map<SetOwner, Seen> seen_;
};

}  // namespace inductorfs::vfs
