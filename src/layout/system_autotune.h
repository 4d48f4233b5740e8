// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "json_text.h"

namespace inductorfs::layout {

/// Parses {"system": {...}, "cache": {...}} of cache/<system hash>; kCorrupt for anything else, kTooLarge over the
/// limits.
[[nodiscard]] Result<JsonValue> parse_system_autotune(std::string_view text);

}  // namespace inductorfs::layout
