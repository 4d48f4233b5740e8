// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "inductorfs/base/result.h"
#include "inductorfs/codec/digest.h"

/// A frame is a blob as the cluster stores it: self-describing, compressed, checked. docs/formats.md has the grammar.
///
///     frame   := magic version codec reserved raw_size digest payload     (integers little-endian)
///     magic   := "IFSF"          version := u8 = 1
///     codec   := u8   0 stored, 1 zstd, 2 zstd with this program's dictionary 1 (blobs up to 1 MiB)
///     reserved:= u16 = 0         raw_size := u64      digest := 32 bytes, SHA-256 of the raw bytes
///     payload := raw bytes | one zstd frame
///
/// The encoder chooses zstd when that shrinks the blob (for blobs over 1 MiB: their first MiB). One blob has many
/// frames: another release of zstd may give other bytes.
///
/// Nothing in a frame is believed: sizes are limits that are checked while inflating, the digest is computed over what
/// came out. Version history: 1, first.
namespace inductorfs::codec {

inline constexpr size_t kFrameHeaderSize = 4 + 1 + 1 + 2 + 8 + Digest::kSize;

/// Where pieces of bytes go; an error stops the producer and is handed on.
using ByteSink = std::function<Result<void>(std::string_view)>;

/// Reads the file behind `fd` from its start (raw_size bytes, digest already known) and gives its frame to `sink` in
/// pieces of at most `piece` bytes, all but the last exactly that long. Memory use does not depend on the size.
/// kCorrupt when the file has another size or digest than said: what was given out so far must then be discarded.
[[nodiscard]] Result<void> encode_frame(int fd, uint64_t raw_size, const Digest& digest, size_t piece,
                                        const ByteSink& sink);
/// The same for bytes in memory, as one string.
[[nodiscard]] Result<std::string> encode_frame(std::string_view raw);

/// Takes a frame in pieces of any length, gives the raw bytes to a sink, and says at the end whether they are the
/// bytes of the expected digest. Never inflates beyond raw_limit. Until finish() has answered success, what went to
/// the sink is unverified. Needs external synchronisation.
class FrameDecoder {
 public:
  FrameDecoder(const Digest& expected, uint64_t raw_limit, ByteSink sink);
  ~FrameDecoder();
  FrameDecoder(FrameDecoder&&) noexcept;
  /// kCorrupt: not a frame, damaged, or longer than said. kNotSupported, before the sink gets anything: a version,
  /// codec or feature that this release does not know. kTooLarge: raw_size over the limit. After an error every further
  /// call answers the same error.
  [[nodiscard]] Result<void> feed(std::string_view piece);
  [[nodiscard]] Result<void> finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The same for a whole frame in memory.
[[nodiscard]] Result<std::string> decode_frame(std::string_view frame, const Digest& expected, uint64_t raw_limit);

}  // namespace inductorfs::codec
