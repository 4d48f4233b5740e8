// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "vfs/origin/origin.h"
#include "vfs/read/cluster_sets.h"
#include "vfs/read/parcels.h"
#include "vfs/read/services.h"
#include "vfs/tree/root_tree.h"
#include "vfs/write/in_place.h"
#include "vfs/write/refusals.h"
#include "vfs/write/sealer.h"

namespace inductorfs::vfs {

/// Explains a path: what is there, where it came from, and why it is shared or not (`inductorfs explain`). Changes
/// nothing. Blocks on the local disk only. Safe for concurrent use.
class Explainer {
 public:
  struct Parts {
    RootTree& tree;
    ClusterSets& sets;
    const Parcels& parcels;
    Marks& marks;
    Origin& origin;
    Sealer& sealer;
    InPlace& in_place;
    const Refusals& refusals;
  };
  Explainer(const Services& services, const Parts& parts);

  [[nodiscard]] Explanation explain(std::string_view path);

 private:
  void explain_place(Explanation& result);
  void explain_without_entry(Explanation& result) const;
  [[nodiscard]] bool shows_directory(const std::string& path) const;
  [[nodiscard]] std::string missing_above(const std::string& path) const;

  catalog::Catalog& catalog_;
  store::BlobStore& store_;
  RootTree& tree_;
  ClusterSets& sets_;
  const Parcels& parcels_;
  Marks& marks_;
  Origin& origin_;
  Sealer& sealer_;
  InPlace& in_place_;
  const Refusals& refusals_;
  const FileSystemOptions& options_{tree_.options()};
  LocalTree& disk_{tree_.disk()};
  NodeTable& nodes_{tree_.nodes()};
  SharedGuarded<Moves>& moves_{tree_.moves()};
};

}  // namespace inductorfs::vfs
