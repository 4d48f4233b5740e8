// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Lines in the mount's log, in its form, without memory of their own.
namespace inductorfs::supervisor {

/// Where lines go; nullptr: standard error. The text must stay. Opened for each line, because the log is rotated by
/// others.
void log_to(const char* path);

/// `level`: "info", "warning", "error". `format` makes the event and its fields: "worker_started pid=%d".
[[gnu::format(printf, 2, 3)]] void log_line(const char* level, const char* format, ...);

}  // namespace inductorfs::supervisor
