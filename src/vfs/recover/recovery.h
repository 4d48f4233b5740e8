// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "vfs/read/services.h"
#include "vfs/tree/root_tree.h"
#include "vfs/write/in_place.h"
#include "vfs/write/key_sets.h"
#include "vfs/write/refusals.h"
#include "vfs/write/sealer.h"
#include "vfs/write/sealing.h"
#include "vfs/write/stale.h"

namespace inductorfs::vfs {

/// Puts in order what an earlier process left on the disk of this store: deleted files, pending sets, files that a
/// host crash tore. Blocks on the local disk. Confined to the thread that opens, and later closes, the file system.
class Recovery {
 public:
  struct Parts {
    RootTree& tree;
    Sealer& sealer;
    InPlace& in_place;
    Sealing& sealing;
    KeySets& key_sets;
    Stale& stale;
    Refusals& refusals;
  };
  Recovery(const Services& services, const Parts& parts);

  /// Recovers before the first request of a mount that takes over from no worker.
  [[nodiscard]] Result<void> run();
  /// Notes, at the end, that everything is on the disk, so that the next start has nothing to verify. `is_published`:
  /// what the cluster has lost has been queued again.
  void mark_clean(bool is_published);

 private:
  void recover_directory(const std::string& path, bool torn);
  void recover_file(const std::string& directory, const std::string& name, const std::vector<LocalTree::Item>& siblings,
                    bool torn);
  void recover_parcel(const std::string& path, bool torn);
  void recover_member(const std::string& path);
  void recover_left(const std::string& path, bool torn);
  void recover_group(const std::string& path, std::vector<std::string> before, bool torn);
  [[nodiscard]] bool is_told(std::string_view event);
  void set_aside(const std::string& path, const Error& why, bool torn);

  catalog::Catalog& catalog_;
  store::BlobStore& store_;
  Counters& counters_;
  RootTree& tree_;
  Sealer& sealer_;
  InPlace& in_place_;
  Sealing& sealing_;
  KeySets& key_sets_;
  Stale& stale_;
  Refusals& refusals_;
  LocalTree& disk_{tree_.disk()};
  Guarded<Pins>& pins_{tree_.pins()};
};

}  // namespace inductorfs::vfs
