// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <algorithm>
#include <optional>
#include <string>

#include "inductorfs/store/blob_file.h"
#include "vfs/disk/local_tree.h"
#include "vfs/nodes/node.h"

namespace inductorfs::vfs {

/// The bytes of a large file that is to get an inode of its own, copied while nobody holds a lock: requests for
/// the file are answered meanwhile. The copy lies in orphans/ until it is taken, and goes with this object. A node has
/// one at a time (Content::copying), or as many users as write to it at once would fill the disk. Confined to one
/// thread; not to be destroyed with the node's lock held.
class EarlyCopy {
 public:
  struct File {
    std::string name;  ///< in the local tree
    Fd file;
  };

  /// No copy yet: it is small, or not needed. `keep_bytes`: the first ones are enough.
  explicit EarlyCopy(std::optional<uint64_t> keep_bytes) : keep_bytes_(keep_bytes) {}
  EarlyCopy(EarlyCopy&& other) noexcept = default;
  EarlyCopy& operator=(EarlyCopy&& other) = delete;
  EarlyCopy(const EarlyCopy&) = delete;
  EarlyCopy& operator=(const EarlyCopy&) = delete;
  ~EarlyCopy();

  /// How much is to be copied of a file of so many bytes.
  [[nodiscard]] uint64_t wanted(uint64_t size) const { return std::min(size, keep_bytes_.value_or(size)); }
  /// Of this node: from now on nobody else makes one.
  void begin(const LocalTree& tree, NodePtr node, Content& content);
  /// Copies the bytes of a file that is never written to. Requires: begin().
  [[nodiscard]] Result<void> fill(int from);
  /// The copy when `from` is the file that it was made of, once; it is the caller's then.
  [[nodiscard]] std::optional<File> take(int from);
  /// Renames a copy of the file over it: the path then names an inode of its own, with the same mode, owner, times and
  /// extended attributes, whose bytes no other name shares.
  [[nodiscard]] Result<void> unshare(const LocalTree& tree, const std::string& path);

  /// So much is copied within a moment, and may be while the lock is held.
  static constexpr uint64_t kLarge = uint64_t{256} << 10;
  static_assert(kLarge >= store::BlobFile::kPackedMost, "what is copied early is read from the start of its file");

 private:
  std::optional<uint64_t> keep_bytes_;
  const LocalTree* tree_ = nullptr;
  NodePtr node_;
  struct stat source_ {};
  std::optional<File> copy_;
};

}  // namespace inductorfs::vfs
