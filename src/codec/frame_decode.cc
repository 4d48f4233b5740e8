// SPDX-License-Identifier: Apache-2.0
#include <zstd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "frame_layout.h"
#include "inductorfs/base/encoding.h"
#include "inductorfs/codec/frame.h"
#include "zstd_context.h"

namespace inductorfs::codec {
namespace {

/// How every zstd frame begins. Checked here: the library would take skippable and, as Debian builds it, legacy frames.
constexpr std::string_view kZstdMagic("\x28\xb5\x2f\xfd", 4);

tl::unexpected<Error> corrupt(std::string_view why) {
  return fail(ErrorCode::kCorrupt, "decode frame: " + std::string(why));
}

/// Not damaged as far as this release can tell. A flipped bit of the first bytes looks the same; bytes that nobody can
/// read for a while are better than bytes that an older release takes away from newer ones.
tl::unexpected<Error> newer(std::string_view what, uint64_t number) {
  return fail(ErrorCode::kNotSupported, "decode frame: " + std::string(what) + " " + std::to_string(number) +
                                            " is unknown, a newer inductorfs may have written it");
}

}  // namespace

struct FrameDecoder::State {
  State(const Digest& expected_digest, uint64_t limit, ByteSink raw_sink)
      : expected(expected_digest), raw_limit(limit), sink(std::move(raw_sink)) {}
  ~State() { give_back(std::move(context)); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Result<void> feed(std::string_view piece);
  Result<void> finish();
  Result<void> take_header();
  Result<void> take_compressed(std::string_view piece);
  Result<void> check_magic(std::string_view piece);
  Result<void> deliver(std::string_view raw);

  Digest expected;
  uint64_t raw_limit;
  ByteSink sink;
  std::string header;
  uint64_t raw_size = 0;
  uint64_t delivered = 0;
  size_t magic_seen = 0;
  bool compressed = false;
  bool ended = false;  ///< the zstd frame has come to its end
  DecompressContext context;
  std::string buffer;
  Hasher hasher;
  std::optional<Error> broken;
};

Result<void> FrameDecoder::State::feed(std::string_view piece) {
  if (header.size() < kFrameHeaderSize) {
    const size_t taken = std::min(kFrameHeaderSize - header.size(), piece.size());
    header.append(piece.substr(0, taken));
    piece.remove_prefix(taken);
    if (header.size() < kFrameHeaderSize) return {};
    INDUCTORFS_TRY(take_header());
  }
  if (piece.empty()) return {};
  return compressed ? take_compressed(piece) : deliver(piece);
}

Result<void> FrameDecoder::State::take_header() {
  ByteReader reader(header);
  if (reader.bytes(kFrameMagic.size()) != kFrameMagic) return corrupt("no frame");
  const auto version = reader.integer<uint8_t>();
  if (version < kFrameVersion) return corrupt("no version");
  if (version > kFrameVersion) return newer("version", version);
  const auto codec = reader.integer<uint8_t>();
  const auto reserved = reader.integer<uint16_t>();
  raw_size = reader.integer<uint64_t>();
  if (reader.bytes(Digest::kSize) != expected.raw()) return corrupt("it is the frame of another blob");
  if (codec != kCodecStored && codec != kCodecZstd && codec != kCodecDictionary && codec != kCodecMember) {
    return newer("codec", codec);
  }
  if (reserved != 0) return newer("feature", reserved);
  if (codec == kCodecMember) return corrupt("it has no bytes of its own, and a member is no block");
  if (raw_size > raw_limit) {
    return fail(ErrorCode::kTooLarge, "decode frame: " + std::to_string(raw_size) + " bytes, " +
                                          std::to_string(raw_limit) + " are the limit");
  }
  if (codec != kCodecStored) {
    compressed = true;
    context = take_decompress_context();
    if (codec == kCodecDictionary) use_dictionary(*context);
    buffer.resize(ZSTD_DStreamOutSize());
  }
  return {};
}

Result<void> FrameDecoder::State::check_magic(std::string_view piece) {
  const size_t count = std::min(kZstdMagic.size() - magic_seen, piece.size());
  if (piece.substr(0, count) != kZstdMagic.substr(magic_seen, count)) return corrupt("the payload is no zstd frame");
  magic_seen += count;
  return {};
}

Result<void> FrameDecoder::State::take_compressed(std::string_view piece) {
  INDUCTORFS_TRY(check_magic(piece));
  if (ended) return corrupt("bytes follow its end");
  ZSTD_inBuffer in{piece.data(), piece.size(), 0};
  for (;;) {
    ZSTD_outBuffer out{buffer.data(), buffer.size(), 0};
    const size_t left = ZSTD_decompressStream(context.get(), &out, &in);
    if (ZSTD_isError(left) != 0) return corrupt(ZSTD_getErrorName(left));
    INDUCTORFS_TRY(deliver(std::string_view(buffer).substr(0, out.pos)));
    if (left == 0) {
      ended = true;
      if (in.pos < in.size) return corrupt("bytes follow its end");
      return {};
    }
    if (in.pos == in.size && out.pos < out.size) return {};
  }
}

Result<void> FrameDecoder::State::deliver(std::string_view raw) {
  if (raw.empty()) return {};
  if (raw.size() > raw_size - delivered) return corrupt("longer than it says");
  hasher.update(raw);
  delivered += raw.size();
  return sink(raw);
}

Result<void> FrameDecoder::State::finish() {
  if (header.size() < kFrameHeaderSize || delivered != raw_size || (compressed && !ended)) return corrupt("cut short");
  if (hasher.finish() != expected) return corrupt("the bytes have another digest");
  return {};
}

std::optional<uint64_t> raw_size_of(std::string_view frame) {
  ByteReader reader(frame);
  const bool is_frame = reader.bytes(kFrameMagic.size()) == kFrameMagic && reader.integer<uint8_t>() == kFrameVersion &&
                        reader.integer<uint8_t>() <= kCodecDictionary && reader.integer<uint16_t>() == 0;
  const auto size = reader.integer<uint64_t>();
  return is_frame && !reader.failed() ? std::optional(size) : std::nullopt;
}

FrameDecoder::FrameDecoder(const Digest& expected, uint64_t raw_limit, ByteSink sink)
    : state_(std::make_unique<State>(expected, raw_limit, std::move(sink))) {}
FrameDecoder::~FrameDecoder() = default;
FrameDecoder::FrameDecoder(FrameDecoder&&) noexcept = default;

Result<void> FrameDecoder::feed(std::string_view piece) {
  if (state_->broken) return fail(*state_->broken);
  auto fed = state_->feed(piece);
  if (!fed) state_->broken = fed.error();
  return fed;
}

Result<void> FrameDecoder::finish() {
  if (state_->broken) return fail(*state_->broken);
  auto finished = state_->finish();
  state_->broken = finished ? Error(ErrorCode::kInvalid, "decode frame: already finished") : finished.error();
  return finished;
}

Result<std::string> decode_frame(std::string_view frame, const Digest& expected, uint64_t raw_limit) {
  std::string raw;
  FrameDecoder decoder(expected, raw_limit, [&raw](std::string_view bytes) -> Result<void> {
    raw.append(bytes);
    return {};
  });
  INDUCTORFS_TRY(decoder.feed(frame));
  INDUCTORFS_TRY(decoder.finish());
  return raw;
}

}  // namespace inductorfs::codec
