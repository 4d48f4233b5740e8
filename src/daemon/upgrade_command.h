// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "command_line.h"
#include "paths.h"

namespace inductorfs::daemon {

/// `inductorfs upgrade`: asks the daemon of a mount, or of every mount of this user, to be followed by a program, and
/// waits until that one serves. Prints, and gives the exit code.
[[nodiscard]] int upgrade_command(const Invocation& invocation, const Environment& environment);

}  // namespace inductorfs::daemon
