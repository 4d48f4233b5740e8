// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace inductorfs::mount {

/// Runs `inductorfs worker`, which only a supervisor starts: serves its mount until that ends or is handed over, and
/// returns the exit code (supervisor/protocol.h). The process must have one thread.
[[nodiscard]] int worker_command();

}  // namespace inductorfs::mount
