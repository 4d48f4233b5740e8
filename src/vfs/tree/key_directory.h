// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/catalog/catalog.h"
#include "vfs/tree/provenance.h"

namespace inductorfs::vfs {

/// A process that puts files, so that no later one with its number is taken for it. Immutable value.
struct SetOwner {
  pid_t process = 0;   ///< thread group id, in the daemon's pid namespace; 0: it cannot be seen from there
  uint64_t start = 0;  ///< clock ticks from the boot to its start
  auto operator<=>(const SetOwner&) const = default;
  [[nodiscard]] bool is_known() const { return process > 0; }
};

/// A Triton key directory shows the files of one writer, or of none. Triton puts file by file, each by rename from a
/// temporary directory, the group file last (triton/runtime/cache.py: FileCacheManager.put, put_group). The files of a
/// process stay in a set of its own, outside the view, until that set is complete; the first complete set of a
/// directory, from this host or from the cluster, is committed and stays. A process that completes a set later sees
/// its own files as long as it lives, everybody else the committed ones.
///
/// One thread compiles a key and puts all of its files (triton/compiler/compiler.py: compile()), but two threads may
/// compile the same one, each for its device (torch/nn/parallel/parallel_apply.py), and put into the set of their
/// process in turn. While that leaves bytes of both, the set is nobody's but this process's, as on a local disk.
struct KeyState {
  enum class Committed { kNone, kLocal, kCluster };

  struct Put {
    pid_t thread = 0;       ///< the last one; 0: it put in an earlier worker's time, or its process is not known
    bool disputed = false;  ///< another thread had put other bytes under this name
  };
  struct WriterSet {
    std::map<std::string, Put> files;
    std::string place;  ///< where they lie
    bool complete = false;
    SteadyTime last_change{};

    [[nodiscard]] std::set<std::string> names() const;
    /// Whether what lies there now is what one thread would have left.
    [[nodiscard]] bool is_of_one_thread() const;
  };

  Committed committed = Committed::kNone;
  std::map<std::string, catalog::Known> cluster;  ///< kCluster: the set as it was taken, but for names deleted here
  std::map<SetOwner, WriterSet> writers;          ///< all processes that are not known have one set
  Provenance provenance;  ///< kLocal: of the committed set, when it came as a whole in this life
};

/// Safe for concurrent use. Lock order: before the node table's.
struct KeyDirectory {
  Guarded<KeyState> state;
};

/// The process of a thread as the daemon's pid namespace numbers it; not known when it is not there.
[[nodiscard]] SetOwner set_owner_of(pid_t thread);
/// Whether a known one has ended.
[[nodiscard]] bool is_gone(const SetOwner& owner);
/// The process of this number, if it lived at that time (CLOCK_REALTIME, give or take two seconds); else not known.
[[nodiscard]] SetOwner set_owner_since(pid_t process, std::chrono::seconds time);

}  // namespace inductorfs::vfs
