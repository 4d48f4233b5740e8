// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "inductorfs/base/result.h"
#include "inductorfs/vfs/types.h"
#include "vfs/disk/local_tree.h"

namespace inductorfs::vfs {

/// Who has made what a file or directory is: its owner, and everybody else who has written to it, or has given it, or a
/// file in it, a name. Who owns an inode does not say who wrote its bytes: a job with umask 0 lets everybody write to
/// its files, and the members of a group write to each other's. The others are a mark on the inode, for good.
struct Makers {
  std::vector<uid_t> users;   ///< the owner first
  std::vector<gid_t> groups;  ///< a member of each of them may have been
  bool anybody = false;       ///< everybody may have been, or more users were than are kept apart
  mode_t once_open = 0;       ///< what note_open() noted
};
/// The most users and groups that are noted of one file.
inline constexpr size_t kMostMakers = 16;

/// Notes a user, before a change. Nothing for the owner. An error of a disk that has no room for the mark: the change
/// must not be made. A disk that keeps no marks is none; whoever may write to a file there may have (makers_of()).
[[nodiscard]] Result<void> note_maker(int file, uid_t user);
/// Notes the owner of a file that is about to have another one. The superuser is none that counts: who restores a copy
/// gives it to its owner.
[[nodiscard]] Result<void> note_owner(int file);
/// Notes who may have written to the pages of a shared mapping, since the kernel does not tell who has: whom the mode
/// lets, of `group`, or of all users.
[[nodiscard]] Result<void> note_writers(int file, mode_t mode, gid_t group);
/// Notes rights that group and others are about to lose: to write to the file, or to reach what is in the directory.
/// Whoever had them may have mapped a file, and writes to its pages later.
[[nodiscard]] Result<void> note_open(int file, mode_t rights);
/// `place` is below the file system's directory. Nobody when nothing is there. What the disk does not tell is an error:
/// neither nobody nor everybody.
[[nodiscard]] Result<Makers> makers_of(const LocalTree& tree, const std::string& place);
[[nodiscard]] Result<Makers> makers_of(int file);

}  // namespace inductorfs::vfs
