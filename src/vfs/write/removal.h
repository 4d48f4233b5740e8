// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "inductorfs/base/guarded.h"
#include "vfs/read/cluster_sets.h"
#include "vfs/read/services.h"
#include "vfs/tree/root_tree.h"

namespace inductorfs::vfs {

/// Orders two steps: "still there? then queue it" and "it is gone: hide what is queued".
struct Queueing {};

/// Takes names away: from the disk and the table in one step, so that who has the file open reads on, and from the
/// cluster's entries that this mount shows. Deleting, renaming and merging use it. Blocks on the local disk only. Safe
/// for concurrent use.
class Removal {
 public:
  Removal(const Services& services, RootTree& tree, ClusterSets& sets)
      : catalog_(services.catalog), counters_(services.counters), tree_(tree), sets_(sets) {}

  /// Held while something is queued, so that it is not hidden in between. Its lock comes after a content's, and before
  /// the node table's.
  [[nodiscard]] Guarded<Queueing>& queueing() { return queueing_; }

  /// The name was deleted here: the cluster's entry, and what is queued under it, are not shown any more.
  void hide_entry(const std::string& canonical);
  /// As hide_entry(), of what a renamed directory took with it; `to` is where the directory is now.
  void hide_moved(const std::string& from, const std::string& to);
  /// Takes the name away, from the disk and the table. `content`: the node's, locked; none without a node. Requires:
  /// moves().
  [[nodiscard]] Result<void> take_name_away(const Site& site, const NodePtr& node, Content* content);

  /// Before the name of `node` goes: a second name for its file if somebody uses it. Requires: moves().
  [[nodiscard]] Result<void> keep_orphan(const Site& site, const NodePtr& node);
  /// After a name went: notes whether it was the last one that is known. Whether it was the last of all is the disk's
  /// to say (RootTree::attributes()).
  void orphaned(const Node& node, Content& content, bool has_file);

  /// Whether rmdir(2) may take it. Requires: moves().
  [[nodiscard]] bool directory_is_empty(const NodePtr& directory, const std::string& path) const;
  /// Whether it, or a directory below it, shows a set of the cluster's.
  [[nodiscard]] bool shows_set(const NodePtr& directory, const std::string& path) const;

 private:
  [[nodiscard]] Result<void> remove_first_name(const std::string& view_path, const NodePtr& node, Content* content,
                                               Result<void> kept);

  catalog::Catalog& catalog_;
  Counters& counters_;
  RootTree& tree_;
  ClusterSets& sets_;
  LocalTree& disk_{tree_.disk()};
  NodeTable& nodes_{tree_.nodes()};
  Guarded<Queueing> queueing_;
};

}  // namespace inductorfs::vfs
