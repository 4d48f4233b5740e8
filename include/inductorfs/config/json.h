// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace inductorfs::config {

/// JSON that keeps its members in the order in which they were added, as people read it.
using Json = nlohmann::ordered_json;

/// Writes one line. Bytes that are not UTF-8 become U+FFFD: a name may have any byte, and dump() would throw.
inline std::string to_line(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }
inline std::string to_pretty(const Json& value) { return value.dump(2, ' ', false, Json::error_handler_t::replace); }

}  // namespace inductorfs::config
