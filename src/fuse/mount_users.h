// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "mount_table.h"

namespace inductorfs::fuse {

struct MountUser {
  pid_t pid = 0;
  std::string command;
  std::string use;  ///< "working directory", "open file", ...
};

/// The processes that hold something below the mount, as far as /proc shows them to this user. Reads links and maps in
/// /proc only: asking about a file itself would hang on a dead mount.
[[nodiscard]] std::vector<MountUser> find_mount_users(const MountEntry& mount);
/// "pid 12 (python, open file), pid 13 ...": the first few, and how many more.
[[nodiscard]] std::string describe_users(const std::vector<MountUser>& users);

}  // namespace inductorfs::fuse
