// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace inductorfs::mount {

/// Runs `inductorfs examiner`, which only a supervisor starts: looks at processes for the worker of a mount
/// (fingerprint/examiner.h) until the worker has gone, and returns the exit code. `cache_file` remembers digests of
/// large files. The process must have one thread.
[[nodiscard]] int examiner_command(const std::string& mountpoint, const std::string& cache_file);

}  // namespace inductorfs::mount
