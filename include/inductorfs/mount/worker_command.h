// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace inductorfs::mount {

/// `inductorfs worker`, which only a supervisor starts: serves its mount until that ends or is handed over, and gives
/// the exit code (supervisor/protocol.h). Requires: one thread.
[[nodiscard]] int worker_command();

}  // namespace inductorfs::mount
