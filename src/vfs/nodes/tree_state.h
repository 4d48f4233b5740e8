// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "inductorfs/base/guarded.h"
#include "inductorfs/codec/digest.h"
#include "inductorfs/vfs/types.h"

/// What RootTree guards by its locks, and the classes that use it see.
namespace inductorfs::vfs {

/// Guards paths: a call that uses a path on the disk holds the lock shared, the rename of a directory holds it
/// exclusively. Whoever has one holds the lock: nobody else can make one, so what asks for one is only true under it.
/// Safe for concurrent use.
class Moves {
 public:
  Moves(const Moves&) = delete;
  Moves& operator=(const Moves&) = delete;

 private:
  friend class SharedGuarded<Moves>;
  Moves() = default;
};

/// Deleted files that the kernel has not forgotten yet. Their space comes back when it does: a moment after unlink(2)
/// returned, if no process has the file open.
struct Orphans {
  uint64_t left = 0;
  uint64_t held = 0;  ///< those that make_room() waited for in vain, because some process has them open
  std::chrono::steady_clock::time_point held_until = std::chrono::steady_clock::time_point::min();
  std::chrono::steady_clock::time_point latest_gone = std::chrono::steady_clock::time_point::min();

  void one_is_gone() {
    if (left > 0) --left;
    held = std::min(held, left);
    latest_gone = std::chrono::steady_clock::now();
  }
};

/// The reasons why blobs must stay in the store.
struct Pins {
  /// Blobs, and the nodes that show them: files, and key directories that show a set of the cluster.
  std::unordered_map<codec::Digest, std::vector<NodeId>> shared;
  std::unordered_map<codec::Digest, std::string> sealed_paths;  ///< local files that are links to blobs

  /// Removes one of the node's pins.
  void unshare(const codec::Digest& digest, NodeId node);
};

}  // namespace inductorfs::vfs
