// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "inductorfs/base/result.h"

namespace inductorfs {

/// Says whether an error tells of this host, its disk or its links at one moment, and nothing of what was to be done:
/// no room, a read-only disk, a read or write that failed. It is no verdict about the bytes, and another try may
/// succeed.
[[nodiscard]] constexpr bool is_of_host(ErrorCode code) noexcept {
  return code == ErrorCode::kNoSpace || code == ErrorCode::kReadOnly || code == ErrorCode::kUnavailable ||
         code == ErrorCode::kTimedOut || code == ErrorCode::kInternal;
}

}  // namespace inductorfs
