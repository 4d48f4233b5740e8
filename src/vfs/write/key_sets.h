// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "inductorfs/base/guarded.h"
#include "vfs/nodes/notifier.h"
#include "vfs/origin/origin.h"
#include "vfs/tree/context.h"
#include "vfs/write/removal.h"
#include "vfs/write/seal_queue.h"

namespace inductorfs::vfs {

/// The sets of files that writers put into Triton key directories (KeyState). It collects each process's files outside
/// the view until they are whole, and then moves them in. What it does not understand it keeps: a set without a group
/// file moves in when its process ends, as private files that stand back behind a set which somebody completes. It
/// holds a key directory's lock while it renames on the local disk, because a reader must not see half a set. Safe for
/// concurrent use.
class KeySets : Context {
 public:
  explicit KeySets(const Context& context) : Context(context) {}

  /// Handles a rename from a temporary name into a key directory. Returns the writer of the set that took the file;
  /// empty when the file belongs to no set. kNoSpace when the set has kMostInSet files. The caller holds moves().
  [[nodiscard]] Result<std::optional<SetOwner>> put_into_set(const Site& from, const Site& to, const Caller& caller);
  /// Shows the set if it is whole and the first one. To be called after put_into_set(), without a lock. `is_again`: it
  /// was made before the first one went (Publish::is_again).
  void commit_if_complete(const NodePtr& directory, std::string path, const SetOwner& set, pid_t writer,
                          bool is_again = false);
  /// Restores a set that an earlier worker left. Returns false when the directory already has a set of this owner.
  [[nodiscard]] bool restore(const NodePtr& directory, const SetOwner& owner, KeyState::WriterSet set);
  /// Reads a set that an earlier worker left in a directory of pending/.
  [[nodiscard]] KeyState::WriterSet set_at(const std::string& place) const;
  /// Ends the set in a directory of pending/ that nobody continues. `torn`: the host went down, and any of its bytes
  /// may be lacking, so that none of its files is kept.
  void recover(const std::string& place, bool torn);
  /// Ends the sets of processes that have ended: in all directories, or in one that a request is about, which then
  /// finds everything.
  void end_dead_sets();
  void settle(NodeId directory);
  /// Removes the sets that have this name and that their processes completed second: those see them under the names of
  /// the first, with which they go. So do those that processes which have ended completed under other names of the key,
  /// behind the cluster's set. Returns whether there was one in this directory.
  bool remove_second(NodeId directory, std::string_view name);
  /// Ends the sets of a directory before somebody removes or renames a file of theirs that everybody is shown.
  void give_up(NodeId directory, std::string_view name);
  /// Returns how many directories have a set that is not complete.
  [[nodiscard]] size_t pending() const;

 private:
  [[nodiscard]] static bool has_room(const Node& directory, const SetOwner& writer, const std::string& name);
  [[nodiscard]] Result<void> keep_pending_orphan(const std::string& place);
  [[nodiscard]] Result<void> begin_set(const NodePtr& directory, const SetOwner& writer, const std::string& place);
  void note_where(KeyState::WriterSet& set, const std::string& path);
  void settle_disputes(KeyState::WriterSet& set) const;
  [[nodiscard]] bool is_free(const KeyState& state, const std::string& path) const;
  [[nodiscard]] static Site site_of(const NodePtr& directory, const std::string& path, const std::string& name) {
    return {directory, name, join(path, name), layout::name_of(join(path, name)), {}};
  }
  [[nodiscard]] Result<void> give_name(const NodePtr& directory, const Site& site, const std::string& place,
                                       std::vector<NodePtr>& gone);
  [[nodiscard]] Result<void> commit(const NodePtr& directory, const std::string& path, KeyState& state,
                                    const SetOwner& writer, std::vector<NodePtr>& gone);
  [[nodiscard]] Result<size_t> keep(const NodePtr& directory, const std::string& path, KeyState& state,
                                    const KeyState::WriterSet& set, std::vector<NodePtr>& gone);
  bool remove_second(const NodePtr& node, std::string_view name, bool elsewhere);
  void remove_unlisted(const NodePtr& parent, const std::string& name, const std::string& path);
  void end_set(const NodePtr& directory, const SetOwner& owner);
  void end_dead_sets(const NodePtr& directory);
  void remove_place(const std::string& place);
  void let_go(const NodePtr& directory, const std::vector<NodePtr>& gone);
  void note_pending(const NodePtr& directory);

  Guarded<std::unordered_map<uint64_t, std::weak_ptr<Node>>> pending_;
};

}  // namespace inductorfs::vfs
