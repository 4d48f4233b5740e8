// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "inductorfs/codec/frame.h"

using inductorfs::Result;
namespace codec = inductorfs::codec;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

/// Hostile frames: nothing crashes or goes over the limit, what is accepted has its digest, and the lengths of the
/// pieces make no difference. The digest that is expected is the header's own, or nothing would get past it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr uint64_t kRawLimit = 1ULL << 20;
  constexpr size_t kDigestAt = codec::kFrameHeaderSize - codec::Digest::kSize;
  const std::string_view frame(reinterpret_cast<const char*>(data), size);
  const auto expected =
      codec::Digest::from_raw(frame.substr(std::min(size, kDigestAt), codec::Digest::kSize)).value_or(codec::Digest{});

  const Result<std::string> whole = codec::decode_frame(frame, expected, kRawLimit);
  if (whole) INDUCTORFS_CHECK(whole->size() <= kRawLimit && codec::digest_of(*whole) == expected);

  uint64_t given = 0;
  codec::FrameDecoder decoder(expected, kRawLimit, [&given](std::string_view raw) -> Result<void> {
    given += raw.size();
    INDUCTORFS_CHECK(given <= kRawLimit);
    return {};
  });
  bool fed = true;
  const size_t piece = size > 0 ? data[size - 1] % 61U + 1 : 1;
  for (size_t at = 0; at < size && fed; at += piece) fed = decoder.feed(frame.substr(at, piece)).has_value();
  INDUCTORFS_CHECK((fed && decoder.finish().has_value()) == whole.has_value());
  return 0;
}
