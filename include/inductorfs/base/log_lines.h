// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string_view>

#include "inductorfs/base/log.h"

/// Lines for the log that one process makes and another one writes.
namespace inductorfs::log {

/// From now on each line of this process, which has one thread, goes to `take` alone, from its event on and whatever
/// its level.
void give_lines_to(std::function<void(Level level, std::string_view line)> take);
/// Writes a line that another process gave, as one of this process.
void write_given(Level level, std::string_view line);

}  // namespace inductorfs::log
