// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "vfs/read/notifier.h"
#include "vfs/read/services.h"
#include "vfs/tree/root_tree.h"

namespace inductorfs::vfs {

/// The cluster's sets that key directories show (KeyState::Committed::kCluster).
///
/// A set is taken as a whole, when its first name is asked for and all its blobs are here, and stays as it was taken
/// for as long as the kernel knows the directory: the cluster may come back with another set (a failover that lost its
/// tail, a restart from nothing), and who has read the group file of one must not meet a child of the other
/// (triton/compiler/compiler.py: CompiledKernel.__init__). It goes when its names are deleted here, when the host's
/// facts are others, when bytes of it cannot be had any more, and when the store needs the room and the kernel has let
/// all its names go.
///
/// Safe for concurrent use. Holds a key directory's lock while it uses the pins' and the node table's.
class ClusterSets {
 public:
  ClusterSets(const Services& services, RootTree& tree, Notifier& notifier)
      : host_(services.host),
        catalog_(services.catalog),
        store_(services.store),
        counters_(services.counters),
        tree_(tree),
        notifier_(notifier) {}

  /// What the cluster has for this name: of the set that is shown where one can be, else as the catalog has it now.
  [[nodiscard]] std::optional<catalog::Known> entry_of(const Node& directory, const std::string& path) const;

  /// Shows the set from now on, unless the directory has one. False: it is none (incomplete, of several writers, for
  /// other facts). Requires: its blobs were here a moment ago. May block on the local disk.
  [[nodiscard]] bool take(const NodePtr& directory, const std::vector<catalog::Known>& set);
  /// Of an earlier worker.
  void restore(const Node& directory, std::map<std::string, catalog::Known> set);

  /// The catalog tells of one of the directory's files. True: a set is shown, and stays.
  [[nodiscard]] bool stays(const NodePtr& directory, const std::string& canonical);
  /// A name was deleted: in every device's directory that shows it.
  void hide(const std::vector<std::string>& paths);
  /// Bytes of it cannot be had.
  void drop(const NodePtr& directory) { drop(directory, &Notifier::wish_forgotten); }
  /// After the host's facts changed.
  void drop_foreign();
  /// For the store, which wants a blob's room: whether the set has gone now.
  [[nodiscard]] bool evict(const NodePtr& directory);

  /// Whether the directory, or one that is known below it, shows a set.
  [[nodiscard]] bool shown_at(const NodePtr& directory) const;

 private:
  using Set = std::map<std::string, catalog::Known>;
  /// How the kernel is told: forget_name where the thread may wait for it.
  using Tell = void (Notifier::*)(NodeId, std::string);
  void drop(const NodePtr& directory, Tell tell);
  [[nodiscard]] bool is_whole(const std::vector<catalog::Known>& set) const;
  [[nodiscard]] bool fits(const Set& set) const;
  void note(const Node& directory, const KeyState& state);
  void pin(const Node& directory, const catalog::Known& known);
  void unpin(const Node& directory, const catalog::Known& known);
  void take_node_away(const NodePtr& directory, const std::string& name, const catalog::Known& known);
  void each_directory(const std::function<void(const NodePtr&)>& use) const;

  const Host& host_;
  catalog::Catalog& catalog_;
  store::BlobStore& store_;
  Counters& counters_;
  RootTree& tree_;
  Notifier& notifier_;
  NodeTable& nodes_{tree_.nodes()};
  Guarded<Pins>& pins_{tree_.pins()};
};

}  // namespace inductorfs::vfs
