// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "inductorfs/config/frozen.h"
#include "inductorfs/mount/process.h"

namespace inductorfs::mount {

/// Becomes the supervisor of this mount; returns only when that fails. `readiness`: whom the first worker tells that
/// the mount answers. Requires: one thread; the mountpoint is resolved and free.
[[nodiscard]] Error launch_supervisor(const config::Frozen& mount, const std::string& program, Readiness& readiness);

/// The supervisor's program: beside this one, or where it is installed. kNotFound with the remedy.
[[nodiscard]] Result<std::string> find_supervisor(const std::string& program);
/// The path of the program that this process runs.
[[nodiscard]] Result<std::string> own_program();

}  // namespace inductorfs::mount
