// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "inductorfs/base/result.h"
#include "inductorfs/config/json_forward.h"

/// The encoding of an error that one process of a mount tells another one.
namespace inductorfs::config {

/// Encodes as {"error", "what"}, with the bytes as they are.
[[nodiscard]] Json error_to_json(const Error& error);
/// Is the inverse; empty for anything else, whoever sent it.
[[nodiscard]] std::optional<Error> error_from_json(const Json& json);

}  // namespace inductorfs::config
