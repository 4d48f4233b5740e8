// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "inductorfs/codec/digest.h"
#include "inductorfs/codec/solid_block.h"

/// How a frame (codec/frame.h) is stored in the cluster: cut into pieces, each a string of its own.
///
///     <prefix>:b:<digest>       := head frame_bytes          piece 0; digest := 32 raw bytes
///     <prefix>:b:<digest>:<n>   := frame_bytes               piece n, n := decimal, from 1 on
///     head      := magic version pieces frame_size           (integers little-endian)
///     magic     := "IFSP"      version := u8 = 1
///     pieces    := u32         frame_size := u64 > 0
///     pieces = ceil(frame_size / kPieceBytes); every piece but the last holds kPieceBytes bytes of the frame, and the
///     last one the rest.
///
/// Piece 0 is written last: if it is there, the others have been there. Version history: 1, first.
namespace inductorfs::remote {

inline constexpr size_t kPieceHeadSize = 4 + 1 + 4 + 8;
/// 2^n - 64 bytes: a value of exactly 2^n bytes wastes a quarter of its memory in the server's allocator.
inline constexpr size_t kValueLimit = (size_t{1} << 20) - 64;
inline constexpr size_t kPieceBytes = kValueLimit - kPieceHeadSize;
inline constexpr uint64_t kFrameSizeLimit = uint64_t{1} << 40;

/// Immutable value.
struct PieceHead {
  uint32_t pieces = 1;
  uint64_t frame_size = 0;

  [[nodiscard]] static PieceHead of(uint64_t frame_size);
  /// Parses a head; empty unless the whole head is there and its numbers agree.
  [[nodiscard]] static std::optional<PieceHead> parse(std::string_view bytes);
  /// Says whether this is a head of a version that this release does not know, so that it may be undamaged.
  [[nodiscard]] static bool is_newer(std::string_view bytes);
  [[nodiscard]] std::string encode() const;
  /// Returns how many bytes of the frame piece `index` holds; `index` must be less than `pieces`.
  [[nodiscard]] size_t size_of(uint32_t index) const;
  bool operator==(const PieceHead&) const = default;
};

/// What the first key of a blob holds that is a member of a solid block: a head, and the frame that names the block.
inline constexpr size_t kMemberValueSize = kPieceHeadSize + codec::kMemberFrameSize;
/// Parses such a value, or the first kMemberValueSize bytes of any; empty if it is none.
[[nodiscard]] std::optional<codec::MemberFrame> member_in(std::string_view value);

[[nodiscard]] std::string piece_key(std::string_view prefix, const codec::Digest& digest, uint32_t index);

}  // namespace inductorfs::remote
