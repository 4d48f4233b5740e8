// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

/// Constants of the frame's grammar (inductorfs/codec/frame.h) that its encoder and decoder share.
namespace inductorfs::codec {

inline constexpr std::string_view kFrameMagic = "IFSF";
inline constexpr uint8_t kFrameVersion = 1;
inline constexpr uint8_t kCodecStored = 0;
inline constexpr uint8_t kCodecZstd = 1;
inline constexpr uint8_t kCodecDictionary = 2;

}  // namespace inductorfs::codec
