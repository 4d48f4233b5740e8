// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <optional>

#include "inductorfs/base/result.h"

namespace inductorfs::vfs {

/// Whose a file is, and what its mode is, as jobs see it. On the disk all belongs to the daemon's user, with mode 0600
/// or 0700, and is a regular file or a directory: what jobs are told is data, kept in an extended attribute of the
/// inode. So the daemon needs no right to give files away, and nothing that a user makes is followed, waited for or run
/// by what finds it on the disk. A symbolic link is a file that holds its target; a FIFO or a socket is an empty one.
struct FileOwner {
  uid_t uid = 0;
  gid_t gid = 0;
  mode_t mode = 0;  ///< as st_mode, with the type

  /// Neither a regular file nor a directory.
  [[nodiscard]] bool is_special() const { return !S_ISREG(mode) && !S_ISDIR(mode); }
};

/// Of an open file, by O_PATH too. Block on the local disk. An inode that has none, as one that was just made, answers
/// nothing.
[[nodiscard]] Result<std::optional<FileOwner>> file_owner(int file);
[[nodiscard]] Result<void> set_file_owner(int file, const FileOwner& owner);
/// Of a name in an open directory, which is not followed.
[[nodiscard]] Result<std::optional<FileOwner>> file_owner_in(int directory, const char* name);

/// Says of a directory that it has, or had, special files: whoever lists it has to look at each file for its type.
[[nodiscard]] bool holds_specials(int directory);
[[nodiscard]] Result<void> note_specials(int directory);

/// Returns fstat(2) as jobs see it.
[[nodiscard]] Result<struct stat> status_of(int file);

}  // namespace inductorfs::vfs
