// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "inductorfs/codec/digest.h"

namespace inductorfs::codec {

/// HMAC-SHA256 (RFC 2104): whoever has the key can say who made the bytes.
[[nodiscard]] Digest keyed_digest_of(std::string_view key, std::string_view bytes);

}  // namespace inductorfs::codec
