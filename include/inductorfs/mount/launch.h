// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "inductorfs/config/frozen.h"
#include "inductorfs/mount/process.h"

namespace inductorfs::mount {

/// Becomes the supervisor of this mount; returns only when that fails. `covered`: of places::ownership_of(). `tree`: of
/// choose_worker_tree(), or empty. The first worker tells `readiness` that the mount answers. The process must have one
/// thread, and the mountpoint must be resolved and free.
[[nodiscard]] Error launch_supervisor(const config::Frozen& mount, const config::Ownership& covered,
                                      const std::string& program, const Fd& tree, Readiness& readiness);

/// Returns the path of the program that this process runs.
[[nodiscard]] Result<std::string> own_program();

}  // namespace inductorfs::mount
