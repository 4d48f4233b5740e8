// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace inductorfs::config {

/// JSON that keeps its members in the order in which they were added, as people read it. Headers that only name it take
/// it from here: the whole of it (json.h) costs each source a second to compile.
using Json = nlohmann::ordered_json;

}  // namespace inductorfs::config
