// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "vfs/nodes/notifier.h"
#include "vfs/read/cluster_sets.h"
#include "vfs/read/parcels.h"
#include "vfs/tree/context.h"

namespace inductorfs::vfs {

/// Tells the store which blobs may go when it needs room. A blob that the kernel shows to some process stays; the
/// kernel is asked to let go of its name, so that a later round may evict it. Never waits for the kernel.
/// Safe for concurrent use.
class Eviction : Context {
 public:
  explicit Eviction(const Context& context) : Context(context) {}

  /// Says whether this blob may go now. A sealed file of the view that shares its inode is removed with it,
  /// and so are the files of a parcel.
  [[nodiscard]] bool allows(const codec::Digest& digest);

 private:
  [[nodiscard]] bool drop_local(const std::string& path, const codec::Digest& digest);
  [[nodiscard]] bool is_known(const std::string& path);
  /// Says whether the blob may go; requires moves(), exclusively.
  [[nodiscard]] bool drop_local_file(const std::string& path, const codec::Digest& digest);
  [[nodiscard]] bool drop_local_set(const std::string& directory);
};

}  // namespace inductorfs::vfs
