// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "settings.h"

namespace inductorfs::daemon {

/// `inductorfs mount`: forks unless --foreground, and becomes the supervisor of the mount in the child. Prints the one
/// line of an error and gives the exit code. Requires: one thread.
[[nodiscard]] int mount_command(Settings settings);

}  // namespace inductorfs::daemon
