// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include "inductorfs/layout/layout.h"
#include "inductorfs/vfs/types.h"

/// How the users of one cache directory come by what torch and Triton share. Those programs make their directories,
/// locks and artefacts with the umask of whoever came first, so that the next user's job fails with EACCES. What the
/// layout owns is therefore *shown* with the rights that the cache root gives: whoever may write to the root may write
/// to these directories and locks, and whoever may read the root may read the artefacts. Nothing changes on the disk,
/// because a mode there would not last: a lock gets its mode by fchmod(2) (filelock), a library by the linker's
/// chmod(2), and a Triton directory its name by a rename.
/// Everything here is pure and safe for concurrent use.
namespace inductorfs::vfs {

/// Returns the rights of group and others at `own` (a file or directory with this owner, group and mode), widened by
/// those that `root` gives. `use` is what other users' jobs do with a file, and does not count for a directory.
/// `mode_is_chosen`: the bits are somebody's choice and no umask's, so that owner and group alone follow the root.
[[nodiscard]] inline Attributes widened(Attributes own, const RootAccess& root, layout::CommonUse use,
                                        bool mode_is_chosen = false) {
  constexpr mode_t kRead = 4;
  constexpr mode_t kWrite = 2;
  constexpr mode_t kEnter = 1;
  constexpr mode_t kAll = kRead | kWrite | kEnter;
  const bool is_directory = S_ISDIR(own.mode);
  const mode_t group = (root.mode >> 3) & kAll;
  // Under a mode like 0707 a member of the root's group is shut out, and may be one of the others here.
  const mode_t others = root.mode & kAll & group;
  const mode_t executes = (own.mode & S_IXUSR) != 0 ? kEnter : 0;
  const auto right = [&](mode_t granted) -> mode_t {
    if ((granted & kEnter) == 0) return 0;
    if (is_directory) return granted;
    if (use == layout::CommonUse::kWrite) return (granted & kWrite) != 0 ? kRead | kWrite : 0;
    return (granted & kRead) != 0 ? kRead | executes : 0;
  };
  // The superuser's things would shut out the user whom the root belongs to.
  if (own.uid == 0) own.uid = root.uid;
  if (group != others && own.gid != root.gid) {
    // The root's group has rights of its own, so its members must be known here as such, as in a set-group-id
    // directory. What the maker's group was allowed is not for them.
    own.gid = root.gid;
    own.mode &= ~(mode_is_chosen ? (kAll & ~group) << 3 : mode_t{S_IRWXG});
  }
  if (mode_is_chosen) return own;
  own.mode |= (right(own.gid == root.gid ? group : others) << 3) | right(others);
  // Under the sticky bit a rename onto another user's file fails (write_atomic), and so do a lock's unlink and, with
  // fs.protected_regular, its open with O_CREAT.
  if (is_directory) own.mode &= ~mode_t{S_ISVTX};
  return own;
}

}  // namespace inductorfs::vfs
