// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <vector>

#include "inductorfs/base/result.h"

namespace inductorfs::config {

/// The user that root's worker becomes, to whom its store belongs (docs/decisions/0042).
struct WorkerUser {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;  ///< the others, as the host's administrator has given them
};

/// The number of the worker's user where the host has no user `inductorfs`; the ranges of systemd leave it to nobody
/// (UIDS-GIDS.md).
inline constexpr uid_t kUnusedNumber = 60957;

/// Returns the user `inductorfs` of /etc/passwd with the groups that /etc/group gives it, else one of kUnusedNumber.
/// Other sources of users are not asked, since they may not answer. kInvalid when the user is root, or the number has
/// a user. Only one thread may be here, or in is_worker_user().
[[nodiscard]] Result<WorkerUser> worker_user();

/// Whether a number is that of a worker's user: the one of this host, or kUnusedNumber.
[[nodiscard]] bool is_worker_user(uid_t uid);

}  // namespace inductorfs::config
