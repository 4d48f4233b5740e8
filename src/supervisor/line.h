// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "user.h"

/// Writes lines into the mount's log, in the log's form, without allocating.
namespace inductorfs::supervisor {

/// Sets the path of the log; nullptr means standard error. The text must stay valid. The file is opened for each line,
/// because other processes rotate the log, and by a child process, for which nobody waits long. The child is `user`, to
/// whom the file belongs, and who may lead its name elsewhere: a log in the store, where `file_of_store` lies, is
/// opened in the tree of files of those who serve, which follows no link there.
void log_to(const char* path, const WorkerIds& user = {}, const char* file_of_store = nullptr);

/// Writes a line. `level` is "info", "warning" or "error". `format` makes the event and its fields:
/// "supervisor.worker_started pid=%d".
[[gnu::format(printf, 2, 3)]] void log_line(const char* level, const char* format, ...);

}  // namespace inductorfs::supervisor
