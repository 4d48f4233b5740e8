// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <vector>

#include "inductorfs/base/mount_table.h"

namespace inductorfs::fuse {

struct MountUser {
  pid_t pid = 0;
  std::string command;  ///< its arguments, shortened, in printable characters; its name if it has no arguments
  std::string use;      ///< "working directory", "open file", ...
  std::string mount_point;
};

struct MountUsers {
  std::vector<MountUser> found;
  size_t hidden = 0;  ///< processes of other users that could not be examined
};

/// Finds the processes that hold something below one of the mounts, as far as /proc shows them to this user. It reads
/// only links and maps in /proc: asking about a file itself would hang on a dead mount.
[[nodiscard]] MountUsers find_mount_users(std::span<const MountEntry> mounts);
/// Returns "pid 12 (python train.py, open file), pid 13 ...": the first few users, and how many more there are. If
/// there are none, says whether some processes could not be examined.
[[nodiscard]] std::string describe_users(const MountUsers& users);

}  // namespace inductorfs::fuse
