// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "vfs/nodes/notifier.h"
#include "vfs/read/root_scopes.h"
#include "vfs/tree/context.h"

namespace inductorfs::vfs {

/// The sets of the cluster that key directories show (KeyState::Committed::kCluster).
///
/// A set is taken as a whole, when its first name is asked for and all its blobs are here. It stays as it was taken for
/// as long as the kernel knows the directory: the cluster may come back with another set (after a failover that lost
/// its tail, or a restart from nothing), and a process that has read the group file of one set must not meet a child of
/// the other (triton/compiler/compiler.py: CompiledKernel.__init__). A set goes when its names are deleted here, when
/// the host's facts have changed, when bytes of it can no longer be had, and when the store needs the room and the
/// kernel has let all its names go.
///
/// A key directory's lock is held while the locks of the pins and of the node table are taken. Safe for concurrent use.
class ClusterSets : Context {
 public:
  explicit ClusterSets(const Context& context) : Context(context) {}

  /// Returns what the cluster has for this name: from the set that the directory shows, or else from the catalog as it
  /// is now. Nothing of a set where the directory shows one of this host.
  [[nodiscard]] std::optional<catalog::KnownEntry> entry_of(const Node& directory, const std::string& path) const;

  /// Returns the files of the catalog's set that a lookup in this directory would show, and its listing has: nothing
  /// where the directory shows a set already, or has files of this host that would mix with it.
  [[nodiscard]] std::vector<catalog::KnownEntry> offered(const Node& directory, const layout::Name& name) const;
  /// Hides files that are here and no set, a part of one, from listings too: they cannot be looked up. They are looked
  /// at again when another file of their set comes.
  void put_aside(const Node& directory, const std::vector<catalog::KnownEntry>& files);
  /// Returns the files of the set that the directory shows.
  [[nodiscard]] static std::vector<catalog::KnownEntry> set_at(const Node& directory);
  /// Shows this set from now on, unless the directory has a set already. Returns false when it is no set (incomplete,
  /// of several writers, for other facts). Its blobs must have been in the store a moment ago. May block on the local
  /// disk.
  [[nodiscard]] bool take(const NodePtr& directory, const std::vector<catalog::KnownEntry>& set);
  /// Shows the set that an earlier worker showed.
  void restore(const Node& directory, std::map<std::string, catalog::KnownEntry> set);

  /// Handles a change of one of the directory's files in the catalog. Returns true when a set is shown, and stays.
  [[nodiscard]] bool stays(const NodePtr& directory, const std::string& path);
  /// Shows the set that the directory of this file lists, before the file is hidden: rm -rf has listed the others, too.
  void take_listed(const std::string& deleted);
  /// Drops the set of each directory at one of these paths, which stand for one deleted file. In the directory where it
  /// was deleted, at `deleted`, the other files stay until each of them is deleted too: rm -rf has listed them.
  void hide(const std::string& deleted, const std::vector<std::string>& paths);
  /// Drops a set of which some bytes cannot be had.
  void drop(const NodePtr& directory) { drop(directory, &Notifier::wish_forgotten); }
  /// Drops the sets that are for other facts, after the host's facts changed.
  void drop_foreign();
  /// Drops the sets of which a file is selected.
  void drop_selected(const layout::Selection& selection);
  /// Drops a set for the store, which needs the room of a blob, if it can; returns whether the set has gone now.
  [[nodiscard]] bool evict(const NodePtr& directory);

  /// Says whether the directory, or a known directory below it, shows a set.
  [[nodiscard]] bool shown_at(const NodePtr& directory) const;

 private:
  using Set = std::map<std::string, catalog::KnownEntry>;
  /// How the kernel is told: by forget_name where the thread may wait for the kernel.
  using Tell = void (Notifier::*)(NodeId, std::string);
  void drop(const NodePtr& directory, Tell tell);
  /// Nothing when the bytes do not tell.
  [[nodiscard]] std::optional<bool> is_whole(const std::vector<catalog::KnownEntry>& set) const;
  void hide_name(const NodePtr& directory, const std::string& name);
  [[nodiscard]] bool fits(const Node& directory, const Set& set) const;
  void note(const Node& directory, const KeyState& state);
  void pin(const Node& directory, const catalog::KnownEntry& known);
  void unpin(const Node& directory, const catalog::KnownEntry& known);
  void take_node_away(const NodePtr& directory, const std::string& name, const catalog::KnownEntry& known);
};

}  // namespace inductorfs::vfs
