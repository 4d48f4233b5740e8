// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "inductorfs/config/json.h"
#include "inductorfs/config/settings.h"

/// The encoding of a further place that was asked for. places/also_state_json.h adds its state.
namespace inductorfs::config {

/// Encodes as {"name", "path"}, with the bytes as they are: the caller writes it as CBOR, or as text with to_line(),
/// which replaces what is not UTF-8.
[[nodiscard]] Json also_to_json(const Also& also);
/// Is the inverse; empty when a member is missing or no string.
[[nodiscard]] std::optional<Also> also_from_json(const Json& json);

}  // namespace inductorfs::config
