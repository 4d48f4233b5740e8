// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "inductorfs/codec/entry.h"

namespace codec = inductorfs::codec;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

/// Hostile entries and records: nothing crashes, and what is accepted is the one encoding of what came out.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto record = codec::decode_record(bytes)) {
    INDUCTORFS_CHECK(codec::encode_record(*record) == bytes);
  }
  if (const auto entry = codec::decode_entry("some/path", bytes)) {
    INDUCTORFS_CHECK(codec::encode_entry(*entry) == bytes);
  }
  if (const auto entry = codec::decode_entry(bytes, codec::encode_entry({}))) {
    INDUCTORFS_CHECK(codec::is_clean_path(entry->path) && entry->path == bytes);
  }
  return 0;
}
