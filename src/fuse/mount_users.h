// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "mount_table.h"

namespace inductorfs::fuse {

struct MountUser {
  pid_t pid = 0;
  std::string command;  ///< its arguments, shortened, in printable characters; its name where it has none
  std::string use;      ///< "working directory", "open file", ...
};

struct MountUsers {
  std::vector<MountUser> found;
  size_t hidden = 0;  ///< processes of other users that could not be looked at
};

/// The processes that hold something below the mount, as far as /proc shows them to this user. Reads links and maps in
/// /proc only: asking about a file itself would hang on a dead mount.
[[nodiscard]] MountUsers find_mount_users(const MountEntry& mount);
/// "pid 12 (python train.py, open file), pid 13 ...": the first few, and how many more. When there are none, whether
/// some could not be looked at.
[[nodiscard]] std::string describe_users(const MountUsers& users);

}  // namespace inductorfs::fuse
