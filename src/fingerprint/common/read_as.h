// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <vector>

#include "inductorfs/base/call_filter.h"
#include "inductorfs/base/result.h"

namespace inductorfs::fingerprint {

/// Whose rights count when files are read for a process.
struct FileUser {
  uid_t user = 0;
  gid_t group = 0;
  std::vector<gid_t> groups;
  bool reads_all = false;  ///< it has the right to read files whatever their permissions say (CAP_DAC_READ_SEARCH)
};

/// Makes this process one of that user for good, who parses what that user chose: what lies behind the user's symbolic
/// links is read only if the user may read it, also where root may not (NFS with root squash), no link of /proc leads
/// to another process's files, and whoever takes the process over has no more than that. The user's other processes
/// cannot look into it. A container's root user may have no rights but those of a file's owner. Where this process is
/// not root it changes nothing; where it is and may not become another user, it keeps its number and no capability. For
/// a process with one thread, because the groups are those of the process.
[[nodiscard]] Result<void> become(const FileUser& user);

/// Becomes that user, who then opens files below `root` alone (by Landlock; -1: wherever he may), is under `filter`
/// (nullptr: under none), and ends with the process that started this one. From there on whoever takes this process
/// over by what it reads may read that, and do nothing else. Without a filter, which `mount` and `status` tell, he has
/// the user's other rights, too; without Landlock he may read in this host's root.
[[nodiscard]] Result<void> confine(const FileUser& user, int root, const CallFilter* filter);

}  // namespace inductorfs::fingerprint
