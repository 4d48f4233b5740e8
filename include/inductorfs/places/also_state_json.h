// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "inductorfs/config/json.h"
#include "inductorfs/places/also.h"

/// The encoding of a further place with its state, for the next worker's notes and for the record of a daemon.
namespace inductorfs::places {

/// Encodes as {"name", "path", "kind", "why", "made", "mount", "device"}, with the bytes as they are.
[[nodiscard]] config::Json state_to_json(const AlsoState& state);
/// Is the inverse; empty for anything else. Without "mount" and "device" the bind mount is not known.
[[nodiscard]] std::optional<AlsoState> state_from_json(const config::Json& json);

/// The same of all places of a mount, as an array.
[[nodiscard]] config::Json states_to_json(const std::vector<AlsoState>& states);
[[nodiscard]] std::optional<std::vector<AlsoState>> states_from_json(const config::Json& json);

}  // namespace inductorfs::places
