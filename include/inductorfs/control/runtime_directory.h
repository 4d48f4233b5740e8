// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>

#include "inductorfs/base/result.h"

/// The directory of the control sockets (runtime_directory in paths.h).
namespace inductorfs::control {

/// Makes it (0700, root's 0755) and checks that it belongs to this user.
[[nodiscard]] Result<void> prepare_runtime_directory(const std::string& directory);

/// Whether it is that user's, no symbolic link, and nobody else may put a socket there.
[[nodiscard]] bool is_runtime_directory(const std::string& directory, uid_t owner);

}  // namespace inductorfs::control
