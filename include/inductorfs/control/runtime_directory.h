// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>

#include "inductorfs/base/result.h"

/// The directory of the control sockets (config::runtime_directory()).
namespace inductorfs::control {

/// Makes the directory (0700, root's 0755) and checks that it belongs to this user.
[[nodiscard]] Result<void> prepare_runtime_directory(const std::string& directory);

/// Says whether the directory belongs to that user, is no symbolic link, and lets nobody else put a socket there.
[[nodiscard]] bool is_runtime_directory(const std::string& directory, uid_t owner);

}  // namespace inductorfs::control
