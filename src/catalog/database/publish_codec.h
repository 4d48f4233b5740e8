// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "inductorfs/base/result.h"
#include "inductorfs/catalog/catalog.h"

namespace inductorfs::catalog {

/// Encodes a queued group as its row keeps it (integers little-endian):
///     payload := version kind scope contest count { seen } count { path value } check
///     version := u8 = 2, kind := u8, count := u32, every string := length u32, bytes; value as codec::encode_entry;
///     check := u32, crc32 (base/encoding.h) of all before it
/// SQLite has no checksums: without the check a flipped bit would publish into a wrong scope, or under a wrong contest.
[[nodiscard]] std::string encode_publish(const Publish& publish);
/// Decodes a group. kCorrupt unless all bytes are used up, every field is within its limit and the check is right.
[[nodiscard]] Result<Publish> decode_publish(std::string_view payload);

}  // namespace inductorfs::catalog
