// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "vfs/read/cluster_sets.h"
#include "vfs/read/root_scopes.h"
#include "vfs/read/services.h"
#include "vfs/tree/root_tree.h"

namespace inductorfs::vfs {

/// Lists directories: the names of the local disk and those of the cluster. Blocks on the local disk only. Safe for
/// concurrent use.
class Listings {
 public:
  Listings(const Services& services, RootTree& tree, RootScopes& scopes, ClusterSets& sets)
      : catalog_(services.catalog), tree_(tree), scopes_(scopes), sets_(sets) {}

  /// FileSystem::read_directory.
  [[nodiscard]] Result<void> read_directory(NodeId directory, uint64_t cookie,
                                            const std::function<bool(const DirectoryItem&)>& take);

 private:
  [[nodiscard]] Result<void> renew_listing(const NodePtr& node, const std::string& path);

  catalog::Catalog& catalog_;
  RootTree& tree_;
  RootScopes& scopes_;
  ClusterSets& sets_;
  NodeTable& nodes_{tree_.nodes()};
};

}  // namespace inductorfs::vfs
