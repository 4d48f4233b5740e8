// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "fuzz_target.h"
#include "inductorfs/codec/frame.h"
#include "inductorfs/codec/solid_block.h"

using inductorfs::Result;
namespace codec = inductorfs::codec;
namespace fuzz = inductorfs::fuzz;

namespace {

constexpr uint64_t kRawLimit = 1ULL << 20;
constexpr size_t kDigestAt = codec::kFrameHeaderSize - codec::Digest::kSize;

struct Decoded {
  bool accepted = false;
  std::string raw;  ///< what was given out, accepted or not
};

Decoded decode(std::string_view frame, const codec::Digest& expected, size_t piece) {
  Decoded decoded;
  codec::FrameDecoder decoder(expected, kRawLimit, [&decoded](std::string_view raw) -> Result<void> {
    decoded.raw += raw;
    INDUCTORFS_CHECK(decoded.raw.size() <= kRawLimit);
    return {};
  });
  bool fed = true;
  for (size_t at = 0; at < frame.size() && fed; at += piece) fed = decoder.feed(frame.substr(at, piece)).has_value();
  decoded.accepted = fed && decoder.finish().has_value();
  return decoded;
}

/// A frame with a header of its own. The digest that is expected is the header's, or nothing would get past it.
void fuzz_frame(std::string_view frame, size_t piece) {
  const auto expected = codec::Digest::from_raw(frame.substr(std::min(frame.size(), kDigestAt), codec::Digest::kSize))
                            .value_or(codec::Digest{});
  if (const auto member = codec::MemberFrame::parse(frame)) {
    INDUCTORFS_CHECK(member->encode() == frame && member->offset + member->size <= codec::kSolidBlockLimit);
  }
  const Result<std::string> whole = codec::decode_frame(frame, expected, kRawLimit);
  if (whole) INDUCTORFS_CHECK(whole->size() <= kRawLimit && codec::digest_of(*whole) == expected);
  const Decoded cut = decode(frame, expected, piece);
  if (cut.accepted) INDUCTORFS_CHECK(codec::digest_of(cut.raw) == expected);
}

/// A payload under a header that fits it, so that what inflates, with the dictionary or without, can be accepted. How
/// it is cut may make a difference to acceptance, but not to the bytes: libzstd 1.5.4 compares a frame's content size
/// with what came out when it has the frame in one piece, and not after an empty last block otherwise
/// (ZSTD_decompressContinue). The digest decides.
void fuzz_payload(uint8_t codec_number, std::string_view payload, size_t piece) {
  const auto frame = [&](uint64_t size, const codec::Digest& digest) {
    std::string out("IFSF\x01", 5);
    inductorfs::append_integer(out, codec_number);
    inductorfs::append_integer(out, uint16_t{0});
    inductorfs::append_integer(out, size);
    return out.append(digest.raw()).append(payload);
  };
  const Decoded first = decode(frame(kRawLimit, {}), {}, piece);
  const codec::Digest digest = codec::digest_of(first.raw);
  const std::string fitting = frame(first.raw.size(), digest);
  const auto whole = codec::decode_frame(fitting, digest, kRawLimit);
  const Decoded cut = decode(fitting, digest, piece);
  if (whole) INDUCTORFS_CHECK(*whole == first.raw);
  if (cut.accepted) INDUCTORFS_CHECK(cut.raw == first.raw);
  if (codec_number == 0 && payload.size() <= kRawLimit) INDUCTORFS_CHECK(whole && *whole == payload);
}

}  // namespace

/// The first byte picks: a frame as it is, or the payload of codec 0, 1 or 2; and how it is cut.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view input = fuzz::view(data, size);
  if (input.empty()) return 0;
  const uint8_t first = fuzz::take_byte(input);
  const size_t piece = first / 4U + 1;
  if (first % 4U == 3) {
    fuzz_frame(input, piece);
  } else {
    fuzz_payload(first % 4U, input, piece);
  }
  return 0;
}
