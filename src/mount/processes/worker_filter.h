// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "inductorfs/config/settings.h"

namespace inductorfs::mount {

/// Says whether /proc hides processes (hidepid of proc(5)): their users are found out by CAP_SYS_PTRACE alone then, or
/// by the members of a group, to which the worker's user belongs.
[[nodiscard]] bool has_hidden_processes();

/// Keeps this worker to its places (file_bounds.h), and puts it under the filter of those who serve
/// (base/call_filter.h), for good: once, and before there are threads. What it could not load then it loads before.
/// Builds with sanitizers, which make calls and files of their own, have neither.
void confine_worker(const config::Settings& settings);

/// Says why this worker has no filter; empty: it has. Safe for concurrent use after confine_worker().
[[nodiscard]] const std::string& worker_filter_warning();
/// Says why this worker, which has no tree of files, is not kept to its places; empty: it is, or has one. As above.
[[nodiscard]] const std::string& worker_places_warning();
/// Says why the kernel does not judge where the files lie that this worker opens; empty: it does. As above.
[[nodiscard]] const std::string& no_landlock();

}  // namespace inductorfs::mount
