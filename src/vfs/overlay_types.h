// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "inductorfs/base/fd.h"
#include "inductorfs/codec/entry.h"
#include "inductorfs/vfs/file_system.h"
#include "vfs/local_tree.h"
#include "vfs/node.h"

namespace inductorfs::vfs {

/// What an Overlay works with. All outlive it.
struct Services {
  const Host& host;
  catalog::Catalog& catalog;
  store::BlobStore& store;
  remote::Remote& remote;
  Counters& counters;
};

struct Moves {};     ///< what Overlay::moves_ guards: paths
struct Queueing {};  ///< orders "still there? then queue it" and "it is gone: hide what is queued"

/// How far a takeover is: what an earlier worker left is looked at when its requests are finished, because a rename
/// that is on the disk only has a node for its file. Until all is looked at nothing is evicted, and sync waits.
enum class Resuming { kNo, kRequests, kFiles };

/// Deleted files that the kernel has not forgotten yet: their space comes back when it does, a moment after unlink(2)
/// returned if nobody has the file open.
struct Orphans {
  uint64_t left = 0;
  uint64_t held = 0;  ///< of them: waited for in vain, somebody has them open
  std::chrono::steady_clock::time_point held_until = std::chrono::steady_clock::time_point::min();
  std::chrono::steady_clock::time_point latest_gone = std::chrono::steady_clock::time_point::min();

  void one_is_gone() {
    if (left > 0) --left;
    held = std::min(held, left);
    latest_gone = std::chrono::steady_clock::now();
  }
};

struct Pins {
  /// Blobs, and the nodes that show them: files, and key directories that show a set of the cluster's.
  std::unordered_map<codec::Digest, std::vector<NodeId>> shared;
  std::unordered_map<codec::Digest, std::string> sealed_paths;  ///< local files that are links to blobs

  /// Takes one of the node's pins away.
  void unshare(const codec::Digest& digest, NodeId node);
};

/// A file that has become a blob.
struct Sealed {
  codec::Entry entry;
  Fd file;
  bool shares_inode = false;  ///< with the blob: it is never written to again
};

/// A name in a directory, resolved.
struct Site {
  NodePtr parent;
  std::string name;
  std::string path;       ///< relative to the mount
  std::string canonical;  ///< the entry it could be
};

/// What is wrong when a path lies in a Triton key directory that is not at the place where Triton's family is (somebody
/// has set TRITON_CACHE_DIR to another directory of the mount); else empty.
[[nodiscard]] std::string misplaced_triton_directory(std::string_view path, const std::string& mountpoint);
/// False for temporary names below triton/: their rename into a key directory shows the file to one process only
/// (KeyState), so the kernel must ask again when the name that it moved is used.
[[nodiscard]] bool kernel_may_keep(std::string_view path);
/// Whether the compiler of a file is at work beside it: the directory that it works in is there
/// (layout::sealed_by_removal_of is the inverse).
[[nodiscard]] bool is_being_built(const std::string& directory, const std::string& name,
                                  const std::vector<LocalTree::Item>& siblings);
/// Whether these files of a Triton set, in this directory, are all that its group file names.
[[nodiscard]] bool set_is_whole(const std::set<std::string>& files, const LocalTree& tree, const std::string& directory,
                                const std::string& key);

}  // namespace inductorfs::vfs
