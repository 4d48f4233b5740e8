// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "inductorfs/codec/digest.h"
#include "inductorfs/codec/frame.h"

/// A solid block is a blob that consists of the bytes of small blobs, its members, one after the other: what they have
/// in common is compressed once. Each member keeps its digest and has a frame that says where its bytes are.
/// docs/formats.md has the grammar, decision 0028 why.
///
///     member frame := magic version codec reserved raw_size digest block offset    (as codec/frame.h, codec := 3)
///     block        := 32 bytes, SHA-256 of the block's bytes        offset := u64, little-endian
///
/// Nothing in a block says which its members are. A block is no member of another one.
namespace inductorfs::codec {

inline constexpr size_t kMemberFrameSize = kFrameHeaderSize + Digest::kSize + sizeof(uint64_t);
/// The most bytes of a block: who wants one member fetches and inflates the whole block.
inline constexpr uint64_t kSolidBlockLimit = uint64_t{1} << 20;

/// Immutable value.
struct MemberFrame {
  Digest digest;  ///< of the member
  uint64_t size = 0;
  Digest block;
  uint64_t offset = 0;

  [[nodiscard]] std::string encode() const;
  /// Parses a frame; empty unless it is a whole frame of a member that lies within kSolidBlockLimit.
  [[nodiscard]] static std::optional<MemberFrame> parse(std::string_view frame);
  /// Returns the member's bytes; empty if the block is too short. They are as unverified as the block is.
  [[nodiscard]] std::optional<std::string_view> cut(std::string_view block_bytes) const;
  bool operator==(const MemberFrame&) const = default;
};

/// Returns what stands before `raw_size` bytes in a frame that holds them as they are (codec 0).
[[nodiscard]] std::string stored_frame_header(const Digest& digest, uint64_t raw_size);

}  // namespace inductorfs::codec
