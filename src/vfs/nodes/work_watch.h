// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "inductorfs/base/clock.h"
#include "vfs/nodes/key_directory.h"

namespace inductorfs::vfs {

/// Tells which processes wait: they and their descendants have used next to nothing of a processor for a while, and no
/// thread of them waits for a disk. A thread that is ready to run shows nothing: on a host with much to do each that
/// wakes to look around is. What cannot be seen counts as work, and so does a thread that spins while it waits.
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
    SteadyTime looked{};
    Milliseconds waited{0};  ///< since it was seen to work last, or seen first
  };
  const Milliseconds patience_;
  std::map<SetOwner, Seen> seen_;
};

}  // namespace inductorfs::vfs
