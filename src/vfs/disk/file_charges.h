// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stop_token>
#include <string>

#include "inductorfs/base/result.h"
#include "vfs/disk/held_parent.h"
#include "vfs/disk/inode_marks.h"
#include "vfs/disk/user_charges.h"

namespace inductorfs::vfs {

class LocalTree;

/// UserCharges, told of files by what the disk says of them: their owner, and whether the store has their inode.
/// Whoever gives a file to somebody, or changes its size, says so here. Blocks on the local disk only. Safe for
/// concurrent use.
class FileCharges : public UserCharges {
 public:
  using UserCharges::UserCharges;

  [[nodiscard]] Result<void> give(int file, const FileOwner& owner, NewFile* made = nullptr);
  /// Of a new file that has its bytes already: kOverQuota.
  [[nodiscard]] Result<void> give_copy(int file, const FileOwner& owner, uint64_t replaced = 0);
  /// Before an open file gets this size, if it has less: kOverQuota. After it resize() is due.
  [[nodiscard]] Result<void> admit_size(int file, uint64_t size);
  /// After the store was offered a sealed file; whether it has taken it, `blob` tells, its file of these bytes.
  void sealed(int file, int blob);
  /// After the owner of the file at this path has changed.
  void look_again(int file, const std::string& path);
  /// After the file has lost this name.
  void lost(int file, const std::string& path);
  /// After what has this path now has got it instead of the path `from`.
  void moved(const HeldParent& to, const std::string& from, const std::string& path);
  /// Before what is at a path goes, with all below it.
  void forget_all(const LocalTree& tree, const std::string& path);
  /// Counts what an earlier daemon left. Blocks for a walk over all files; others may change them meanwhile.
  void count_all(const LocalTree& tree, const std::stop_token& stop);

 private:
  [[nodiscard]] bool count_below(const LocalTree& tree, const std::string& path, mode_t type,
                                 const std::stop_token& stop);
};

}  // namespace inductorfs::vfs
