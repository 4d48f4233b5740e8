// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "inductorfs/base/result.h"
#include "inductorfs/catalog/catalog.h"

namespace inductorfs::catalog {

/// A queued group as its row keeps it (integers little-endian):
///     payload := version kind scope contest count { seen } count { path value }
///     version := u8 = 1, kind := u8, count := u32, every string := length u32, bytes; value as codec::encode_entry
[[nodiscard]] std::string encode_publish(const Publish& publish);
/// kCorrupt unless all of it is used up and every field is within its limit.
[[nodiscard]] Result<Publish> decode_publish(std::string_view payload);

}  // namespace inductorfs::catalog
