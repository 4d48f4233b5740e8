// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "inductorfs/config/json_forward.h"

namespace inductorfs::mount {

/// Parses what a mount, or anybody, has written as a node's record (remote/operators.h); null unless it is JSON of the
/// size and depth of a record: a deep or long one would cost much memory for each of thousands.
[[nodiscard]] config::Json parse_node_record(const std::string& text);

/// What a record shows of a mountpoint.
[[nodiscard]] std::string shown_mountpoint(const std::string& mountpoint);
/// What a mount is remembered by (Operators::remember_node): host and mountpoint, which a reboot does not change.
[[nodiscard]] std::string node_name(const std::string& host, const std::string& mountpoint);
/// {"host", "mountpoint"} of such a name; null of anything else.
[[nodiscard]] config::Json parse_node_name(const std::string& name);

}  // namespace inductorfs::mount
