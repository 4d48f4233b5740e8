// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "vfs/origin/origin.h"
#include "vfs/read/notifier.h"
#include "vfs/read/services.h"
#include "vfs/tree/root_tree.h"
#include "vfs/write/removal.h"

namespace inductorfs::vfs {

/// Takes away what was made for other facts than this host's. The facts may change between two mounts, or under one.
/// What the cluster is still to get of it stays in the store until then. Blocks on the local disk only. Safe for
/// concurrent use.
class Stale {
 public:
  Stale(const Services& services, RootTree& tree, Origin& origin, Marks& marks, Removal& removal, Notifier& notifier)
      : host_(services.host),
        catalog_(services.catalog),
        counters_(services.counters),
        tree_(tree),
        origin_(origin),
        marks_(marks),
        removal_(removal),
        notifier_(notifier) {}

  /// Everything stale in this directory of the view and below it, while requests are served.
  void drop_stale_below(const std::string& path);

  // ---- before the first request
  /// Pins what an earlier life kept for the cluster.
  void recover_stale();
  /// Whether a file of the view is this host's, now, and may be sealed. Takes it away when it is stale.
  [[nodiscard]] bool recover_provenance(const std::string& path);
  /// As recover_provenance(), of a Triton set.
  [[nodiscard]] bool recover_set(const std::string& path, std::vector<std::string> names);

 private:
  [[nodiscard]] bool is_stale(const std::string& path, const std::vector<std::string>& scopes) const;
  void drop_stale(const std::string& directory, std::vector<std::string> names);
  void keep_what_is_queued(const std::string& path);

  const Host& host_;
  catalog::Catalog& catalog_;
  Counters& counters_;
  RootTree& tree_;
  Origin& origin_;
  Marks& marks_;
  Removal& removal_;
  Notifier& notifier_;
  LocalTree& disk_{tree_.disk()};
  NodeTable& nodes_{tree_.nodes()};
  SharedGuarded<Moves>& moves_{tree_.moves()};
  Guarded<Pins>& pins_{tree_.pins()};
};

}  // namespace inductorfs::vfs
