// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string_view>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/log.h"

/// Files and lines of a log that another process opens, makes or writes.
namespace inductorfs::log {

/// As open(), with a file that somebody else has opened for appending. It is begun anew at 16 MiB: nobody here knows
/// its directory.
void open_given(Fd file, Level lowest);

/// From now on each line of this process, which has one thread, goes to `take` alone, from its event on and whatever
/// its level.
void give_lines_to(std::function<void(Level level, std::string_view line)> take);
/// Writes a line that another process gave, as one of this process.
void write_given(Level level, std::string_view line);

}  // namespace inductorfs::log
