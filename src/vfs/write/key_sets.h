// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "inductorfs/base/guarded.h"
#include "vfs/origin/origin.h"
#include "vfs/read/services.h"
#include "vfs/tree/root_tree.h"
#include "vfs/write/sealer.h"

namespace inductorfs::vfs {

/// The sets of files that writers put into Triton key directories (KeyState). It collects each process's files outside
/// the view until they are whole, and then moves them in. It holds a key directory's lock while it renames on the local
/// disk, because a reader must not see half a set. Safe for concurrent use.
class KeySets {
 public:
  KeySets(const Services& services, RootTree& tree, Origin& origin, Marks& marks, Sealer& sealer)
      : counters_(services.counters), tree_(tree), origin_(origin), marks_(marks), sealer_(sealer) {}

  /// Handles a rename from a temporary name into a key directory. Returns the writer of the set that took the file;
  /// empty when the file belongs to no set. kNoSpace when the set has kMostInSet files. The caller holds moves().
  [[nodiscard]] Result<std::optional<SetOwner>> put_into_set(const Site& from, const Site& to, const Caller& caller);
  /// Shows the set if it is whole and the first one. To be called after put_into_set(), without a lock.
  void commit_if_complete(const Site& site, const SetOwner& set, pid_t writer);
  /// Restores a set that an earlier worker left. Returns false when the directory already has a set of this owner.
  [[nodiscard]] bool restore(const NodePtr& directory, const SetOwner& owner, KeyState::WriterSet set);
  /// Forgets the sets of processes that have ended.
  void drop_dead_sets();
  /// Returns how many directories have a set that is not complete.
  [[nodiscard]] size_t pending() const;

 private:
  [[nodiscard]] static bool has_room(const Node& directory, const SetOwner& writer, const std::string& name);
  [[nodiscard]] Result<void> keep_pending_orphan(const std::string& place);
  [[nodiscard]] Result<void> commit(const NodePtr& directory, const std::string& path, KeyState& state,
                                    const SetOwner& writer);
  void note_pending(const NodePtr& directory);

  Counters& counters_;
  RootTree& tree_;
  Origin& origin_;
  Marks& marks_;
  Sealer& sealer_;
  LocalTree& disk_{tree_.disk()};
  NodeTable& nodes_{tree_.nodes()};
  SharedGuarded<Moves>& moves_{tree_.moves()};
  Guarded<std::unordered_map<uint64_t, std::weak_ptr<Node>>> pending_;
};

}  // namespace inductorfs::vfs
