// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

/// The commands of the processes that serve a mount; only a supervisor starts them. Each returns the exit code.
namespace inductorfs::mount {

/// Runs `inductorfs worker`: serves its mount until that ends or is handed over (supervisor/protocol.h). The process
/// must have one thread.
[[nodiscard]] int worker_command();
/// Runs a mounter with the descriptors that its supervisor has opened. `once`: empty, it does what its worker says
/// until that has gone; "leave": it takes the mount down, and ends.
[[nodiscard]] int mounter_command(const std::string& once);
/// Runs `inductorfs examiner`: looks at processes for the worker of a mount (fingerprint/examiner.h) until the worker
/// has gone. `cache_file` remembers digests of large files. The process must have one thread.
[[nodiscard]] int examiner_command(const std::string& mountpoint, const std::string& cache_file);

}  // namespace inductorfs::mount
