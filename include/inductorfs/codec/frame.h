// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "inductorfs/base/result.h"
#include "inductorfs/codec/digest.h"

/// A frame is a blob as the cluster stores it: self-describing, compressed, checked. docs/formats.md has the grammar.
///
///     frame   := magic version codec reserved raw_size digest payload     (integers little-endian)
///     magic   := "IFSF"          version := u8 = 1
///     codec   := u8   0 stored, 1 zstd, 2 zstd with this program's dictionary 1 (blobs up to 1 MiB); 3 is for frames
///                     without bytes of their own (codec/solid_block.h), which a decoder refuses as kCorrupt
///     reserved:= u16 = 0         raw_size := u64      digest := 32 bytes, SHA-256 of the raw bytes
///     payload := raw bytes | one zstd frame
///
/// The encoder chooses zstd when that shrinks the blob (for blobs over 1 MiB: when it shrinks their first MiB). One
/// blob has many frames, because another release of zstd may give other bytes.
///
/// A reader trusts nothing in a frame: sizes are limits that are checked while inflating, and the digest is computed
/// over the bytes that came out. Version history: 1, first.
namespace inductorfs::codec {

/// The highest codec whose frames this release reads.
inline constexpr unsigned kNewestCodec = 3;

inline constexpr size_t kFrameHeaderSize = 4 + 1 + 1 + 2 + 8 + Digest::kSize;

/// Receives pieces of bytes. If it answers an error, the producer stops and returns that error.
using ByteSink = std::function<Result<void>(std::string_view)>;

/// Reads up to `size` bytes from byte `at` on; fewer only at the end.
using ReadAt = std::function<Result<size_t>(char* out, size_t size, uint64_t at)>;

/// Reads a blob from its start (raw_size bytes, whose digest is known) and gives its frame to `sink` in pieces of
/// exactly `piece` bytes, except that the last one may be shorter. Memory use does not depend on the size. kCorrupt
/// when the blob has another size or digest: the pieces that were given out must then be discarded.
[[nodiscard]] Result<void> encode_frame(const ReadAt& read, uint64_t raw_size, const Digest& digest, size_t piece,
                                        const ByteSink& sink);
/// Encodes bytes in memory as one string.
[[nodiscard]] Result<std::string> encode_frame(std::string_view raw);

/// Returns how long the blob is, as the first kFrameHeaderSize bytes of its frame say; empty unless this release writes
/// such frames. The number is as unverified as the bytes.
[[nodiscard]] std::optional<uint64_t> raw_size_of(std::string_view frame);

/// Takes a frame in pieces of any length, gives the raw bytes to a sink, and says at the end whether they are the bytes
/// of the expected digest. It never inflates more than raw_limit bytes. Until finish() has answered success, the bytes
/// that went to the sink are unverified. Needs external synchronisation.
class FrameDecoder {
 public:
  FrameDecoder(const Digest& expected, uint64_t raw_limit, ByteSink sink);
  ~FrameDecoder();
  FrameDecoder(FrameDecoder&&) noexcept;
  /// Takes the next piece. kCorrupt: not a frame, damaged, or longer than it says. kNotSupported, before the sink gets
  /// anything: a version, codec or feature that this release does not know. kTooLarge: raw_size is over the limit.
  /// After an error every further call answers the same error.
  [[nodiscard]] Result<void> feed(std::string_view piece);
  [[nodiscard]] Result<void> finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Decodes a whole frame in memory.
[[nodiscard]] Result<std::string> decode_frame(std::string_view frame, const Digest& expected, uint64_t raw_limit);

}  // namespace inductorfs::codec
