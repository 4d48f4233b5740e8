// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "vfs/origin/refusals.h"
#include "vfs/tree/context.h"
#include "vfs/write/in_place.h"
#include "vfs/write/key_sets.h"
#include "vfs/write/seal_queue.h"
#include "vfs/write/sealing.h"
#include "vfs/write/stale.h"

namespace inductorfs::vfs {

/// Puts in order what an earlier process left on the disk of this store: deleted files, pending sets, files that a
/// host crash tore. Blocks on the local disk. Confined to the thread that opens, and later closes, the file system.
class Recovery : Context {
 public:
  explicit Recovery(const Context& context) : Context(context) {}

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
};

}  // namespace inductorfs::vfs
