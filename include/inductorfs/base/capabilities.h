// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "inductorfs/base/result.h"

namespace inductorfs {

/// Gives up for good all capabilities of this thread but those in `kept` (capabilities(7)): permitted, effective and
/// inheritable. It gains none. To be called before the process has other threads.
[[nodiscard]] Result<void> keep_capabilities(std::span<const int> kept);

}  // namespace inductorfs
