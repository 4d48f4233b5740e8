// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "inductorfs/base/encoding.h"
#include "inductorfs/codec/digest.h"

/// Constants of the frame's grammar (inductorfs/codec/frame.h) that those who write and read it share.
namespace inductorfs::codec {

inline constexpr std::string_view kFrameMagic = "IFSF";
inline constexpr uint8_t kFrameVersion = 1;
inline constexpr uint8_t kCodecStored = 0;
inline constexpr uint8_t kCodecZstd = 1;
inline constexpr uint8_t kCodecDictionary = 2;
inline constexpr uint8_t kCodecMember = 3;  ///< inductorfs/codec/solid_block.h

/// Returns what stands before the payload.
[[nodiscard]] inline std::string frame_header(uint8_t codec, uint64_t raw_size, const Digest& digest) {
  std::string header(kFrameMagic);
  append_integer(header, kFrameVersion);
  append_integer(header, codec);
  append_integer(header, uint16_t{0});
  append_integer(header, raw_size);
  header.append(digest.raw());
  return header;
}

}  // namespace inductorfs::codec
