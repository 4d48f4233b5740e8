// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/catalog/catalog.h"
#include "vfs/nodes/provenance.h"

namespace inductorfs::vfs {

/// Identifies a process that puts files, so that a later process with its number is not mistaken for it. Immutable
/// value.
struct SetOwner {
  pid_t process = 0;  ///< thread group id, in the daemon's pid namespace; 0: the process cannot be seen from there
  /// Clock ticks from the boot to the start of the process. Of a process that cannot be seen: the id by which its
  /// temporary names tell it from others, in its own pid namespace; 0 if they do not.
  uint64_t start = 0;
  auto operator<=>(const SetOwner&) const = default;
  [[nodiscard]] bool is_known() const { return process > 0; }
};

/// The state of a Triton key directory, which shows the files of one writer, or of none. Triton puts its files one by
/// one, each by rename from a temporary directory, the group file last (triton/runtime/cache.py: FileCacheManager.put,
/// put_group). The files of a process stay in a set of its own, outside the view, until that set is complete. The first
/// complete set of a directory, from this host or from the cluster, is committed and stays. A process that completes a
/// set later sees its own files as long as it lives; all others see the committed ones. What a process has put when it
/// ends without a group file (a dump, half a kernel) gets its names, as on a local disk, and belongs to no set.
///
/// One thread compiles a key and puts all of its files (triton/compiler/compiler.py: compile()), but two threads may
/// compile the same key, each for its device (torch/nn/parallel/parallel_apply.py), and put into the set of their
/// process in turn. As long as that leaves bytes of both, only this process sees the set, as on a local disk.
struct KeyState {
  enum class Committed { kNone, kLocal, kCluster };

  struct Put {
    pid_t thread = 0;  ///< the last thread that put it; 0: put in an earlier worker's time, or the process is not known
    bool disputed = false;  ///< another thread had put other bytes under this name
  };
  struct WriterSet {
    std::map<std::string, Put> files;
    std::string place;  ///< the directory that holds them, below the file system's directory
    std::string where;  ///< the path of the key directory, as it is noted there
    bool complete = false;
    SteadyTime last_change{};

    [[nodiscard]] std::set<std::string> names() const;
    /// Says whether the files that are there now are those that one thread alone would have left.
    [[nodiscard]] bool is_of_one_thread() const;
  };

  Committed committed = Committed::kNone;
  std::map<std::string, catalog::KnownEntry>
      cluster;  ///< kCluster: the set as it was taken, without names deleted here
  std::map<SetOwner, WriterSet> writers;
  Provenance provenance;  ///< kLocal: of the committed set, if it came as a whole in this worker's life

  /// Returns the owner for what this caller puts: processes that are not known have a set for each id that their
  /// temporary names tell, and share one set where the names tell none or too many.
  [[nodiscard]] SetOwner owner_of_put(const SetOwner& caller, std::string_view temporary_path) const;
  /// Returns the pending set from which this caller is shown a file; nullptr if there is none. Processes that are not
  /// known cannot be told apart when they only look: they are shown what the committed set has, so that each of them
  /// sees one writer's files, and else the first pending set that has the file, but no group file of it: a writer looks
  /// for what it has put, a reader for the group file first.
  [[nodiscard]] const WriterSet* shown_to(const SetOwner& caller, const std::string& name, bool is_committed) const;
  /// Returns the pending set from which everybody is shown a file that has no other name in the directory, as on a
  /// local disk (Triton's dumps are such sets): while no set is committed, that of the process that put last. Without
  /// its group file nobody takes it for a set. nullptr if there is none.
  [[nodiscard]] const WriterSet* shown_to_all() const;
};

/// What the kernel keeps of the group files of a key directory. Their text is for one view of the mount
/// (FileSystemOptions::where_seen), and the kernel shows what it keeps to every process.
struct GroupNames {
  bool several = false;  ///< processes with several views have looked group files up: the kernel may keep none
  bool kept = false;     ///< the kernel may have kept some
  std::string kept_for;  ///< the directory as that view sees it; empty: their texts tell

  /// Notes that the kernel keeps a group file of which it is not known yet what it shows.
  void keep_unseen() {
    kept = true;
    kept_for.clear();
  }
  /// Notes another view. Returns true when the kernel has to forget what it may have kept.
  [[nodiscard]] bool meet_another() {
    several = true;
    return std::exchange(kept, false);
  }
};

/// Guards the state of one key directory. The lock of `state` is taken before the node table's; that of `groups` is a
/// leaf. Safe for concurrent use.
struct KeyDirectory {
  Guarded<KeyState> state;
  Guarded<GroupNames> groups;
};

/// Returns the process of a thread, by its number in the daemon's pid namespace; not known when it is not there.
[[nodiscard]] SetOwner set_owner_of(pid_t thread);
/// Says whether a known process has ended.
[[nodiscard]] bool is_gone(const SetOwner& owner);

}  // namespace inductorfs::vfs
