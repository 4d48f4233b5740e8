// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "vfs/read/cluster_sets.h"
#include "vfs/read/notifier.h"
#include "vfs/read/services.h"
#include "vfs/tree/root_tree.h"

namespace inductorfs::vfs {

/// Follows the catalog: names appear, change and go behind the kernel's back, and this class tells the kernel to forget
/// them. The catalog's threads call it, and it blocks until the Notifier has room. Safe for concurrent use.
class ClusterChanges {
 public:
  ClusterChanges(const Services& services, RootTree& tree, ClusterSets& sets, Notifier& notifier)
      : catalog_(services.catalog), tree_(tree), sets_(sets), notifier_(notifier) {}

  /// FileSystem::on_catalog_change.
  void on_catalog_change(const std::vector<std::string>& canonical_paths);
  /// Applies the change of one name.
  void apply(const std::string& path);

 private:
  /// Adds what the kernel is to be told; returns the directory whose listing has changed.
  NodeId change(const std::string& path, std::vector<Notifier::Notice>& notices);

  catalog::Catalog& catalog_;
  RootTree& tree_;
  ClusterSets& sets_;
  Notifier& notifier_;
  NodeTable& nodes_{tree_.nodes()};
};

}  // namespace inductorfs::vfs
