// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <string>
#include <vector>

#include "vfs/read/cluster_sets.h"
#include "vfs/tree/context.h"

namespace inductorfs::vfs {

/// Which names of the cluster a directory shows: what a listing has beside the names of the local disk, and what
/// rmdir(2) and rename(2) find in it. They ask here, so that a directory whose listing is empty can be removed. Which
/// files of a Triton set are shown is decided for the set as a whole (ClusterSets, catalog::Catalog::hide). Safe for
/// concurrent use.
class ShownNames : Context {
 public:
  struct Item {
    std::string name;
    mode_t type = 0;
    std::string entry;  ///< the entry's path, where the name is one; a directory above entries has none
  };

  explicit ShownNames(const Context& context) : Context(context) {}

  /// Returns the names that a directory shows, in no order, some twice. `directory` may be nullptr, when the kernel
  /// does not know it.
  [[nodiscard]] std::vector<Item> in(const NodePtr& directory, const std::string& path) const;
  /// Says whether the directory shows any, or leads to some that the kernel knows in roots below it.
  [[nodiscard]] bool any_at_or_below(const NodePtr& directory, const std::string& path) const;

 private:
  [[nodiscard]] bool lists_all(const layout::Name& name, const std::string& path) const;
  [[nodiscard]] bool has_pending(const NodePtr& directory) const;
  [[nodiscard]] bool is_known(const NodePtr& node, const std::string& path) const;
  [[nodiscard]] bool any_known(const NodePtr& directory, const std::string& path) const;
};

}  // namespace inductorfs::vfs
