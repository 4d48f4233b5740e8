// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "command_line.h"

namespace inductorfs::daemon {

/// `inductorfs check`: prints what is wrong with a store that no daemon serves, and gives the exit code: kExitDone when
/// it is sound, or was made so; kExitFailed when it is not, or cannot be looked at.
[[nodiscard]] int check_command(const Invocation& invocation);

}  // namespace inductorfs::daemon
