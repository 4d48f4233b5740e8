// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "inductorfs/config/json_forward.h"

namespace inductorfs::config {

/// Writes one line. Bytes that are not UTF-8 become U+FFFD: a name may have any byte, and dump() would throw.
[[nodiscard]] std::string to_line(const Json& value);
[[nodiscard]] std::string to_pretty(const Json& value);
/// Reads either; of what is no JSON a value that is neither null nor an object (is_discarded()).
[[nodiscard]] Json from_text(std::string_view text);

}  // namespace inductorfs::config
