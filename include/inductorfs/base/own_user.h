// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <span>

#include "inductorfs/base/result.h"

/// For whom a process acts. Root's worker becomes a user who may do nothing (docs/decisions/0042), and serves root's
/// mount all the same: what a mount allows its own user, and says of him, goes by own_uid(), what the disk says of
/// this process's files by geteuid(2).
namespace inductorfs {

/// Return for whom this process acts: its effective user and group, unless act_for() or become_user() came before. Safe
/// for concurrent use.
[[nodiscard]] uid_t own_uid();
[[nodiscard]] gid_t own_gid();

/// This process was made another user's by who started it, and acts for this one. Before there are threads.
void act_for(uid_t uid, gid_t gid);

/// Becomes another user for good, with these further groups and none of root's rights, and acts for the one of before.
/// No other user may look at this process or stop it then, except root. Before there are threads. An error may leave a
/// part done: the process is to end.
[[nodiscard]] Result<void> become_user(uid_t uid, gid_t gid, std::span<const gid_t> groups);

/// Gives up for good all capabilities of this thread but those in `kept` (capabilities(7)): permitted, effective and
/// inheritable. It gains none. To be called before the process has other threads.
[[nodiscard]] Result<void> keep_capabilities(std::span<const int> kept);

}  // namespace inductorfs
