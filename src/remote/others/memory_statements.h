// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "inductorfs/remote/statements.h"

namespace inductorfs::remote {

/// The statements of a cluster in memory. Safe for concurrent use.
[[nodiscard]] std::shared_ptr<Statements> make_memory_statements();

}  // namespace inductorfs::remote
