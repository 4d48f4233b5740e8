// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace inductorfs {

/// Returns the start of a process, in clock ticks since boot, from the text of its /proc/PID/stat. With its number it
/// identifies the process. Empty when the text is no such file's.
[[nodiscard]] std::optional<uint64_t> start_in_stat(std::string_view stat);
/// Returns the process that is the parent, from the same text.
[[nodiscard]] std::optional<pid_t> parent_in_stat(std::string_view stat);

/// Returns the processor time of the process and of those of its children that have ended, in clock ticks, from the
/// same text.
[[nodiscard]] std::optional<uint64_t> ticks_in_stat(std::string_view stat);

/// The same of the process, or thread, alone.
[[nodiscard]] std::optional<uint64_t> own_ticks_in_stat(std::string_view stat);

/// Says whether the thread waits for a disk, from the text of its /proc/PID/task/TID/stat.
[[nodiscard]] bool waits_for_disk_in_stat(std::string_view stat);

/// Says whether the process has ended and only its parent has not looked yet (a zombie), from the same text. A process
/// whose first thread has ended before others is none.
[[nodiscard]] bool is_ended_in_stat(std::string_view stat);

/// Returns what the text of a /proc/PID/status says of `name`, without the blanks in front of it; empty when it says
/// nothing. What "Name" says is no other line, whatever the process calls itself: the kernel escapes line ends.
[[nodiscard]] std::string_view line_in_status(std::string_view status, std::string_view name);
/// Returns the number that this begins with.
[[nodiscard]] std::optional<uint64_t> number_in_status(std::string_view status, std::string_view name);

}  // namespace inductorfs
