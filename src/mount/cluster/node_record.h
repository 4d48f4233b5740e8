// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "inductorfs/config/json_forward.h"

namespace inductorfs::mount {

/// Parses what a mount, or anybody, has written as a node's record (remote/operators.h); null unless it is JSON of the
/// size and depth of a record: a deep or long one would cost much memory for each of thousands.
[[nodiscard]] config::Json parse_node_record(const std::string& text);

}  // namespace inductorfs::mount
