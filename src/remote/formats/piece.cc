// SPDX-License-Identifier: Apache-2.0
#include "remote/formats/piece.h"

#include <algorithm>

#include "inductorfs/base/encoding.h"

namespace inductorfs::remote {
namespace {

constexpr std::string_view kMagic = "IFSP";
constexpr uint8_t kVersion = 1;
static_assert(kFrameSizeLimit / kPieceBytes < UINT32_MAX);

}  // namespace

PieceHead PieceHead::of(uint64_t frame_size) {
  return {static_cast<uint32_t>((frame_size + kPieceBytes - 1) / kPieceBytes), frame_size};
}

std::optional<PieceHead> PieceHead::parse(std::string_view bytes) {
  ByteReader reader(bytes.substr(0, kPieceHeadSize));
  const std::string_view magic = reader.bytes(kMagic.size());
  const auto version = reader.integer<uint8_t>();
  const auto pieces = reader.integer<uint32_t>();
  const auto frame_size = reader.integer<uint64_t>();
  if (!reader.complete() || magic != kMagic || version != kVersion) return std::nullopt;
  if (frame_size == 0 || frame_size > kFrameSizeLimit) return std::nullopt;
  const PieceHead head = PieceHead::of(frame_size);
  if (head.pieces != pieces) return std::nullopt;
  return head;
}

bool PieceHead::is_newer(std::string_view bytes) {
  ByteReader reader(bytes);
  const std::string_view magic = reader.bytes(kMagic.size());
  const auto version = reader.integer<uint8_t>();
  return !reader.failed() && magic == kMagic && version > kVersion;
}

std::string PieceHead::encode() const {
  std::string out(kMagic);
  append_integer(out, kVersion);
  append_integer(out, pieces);
  append_integer(out, frame_size);
  return out;
}

size_t PieceHead::size_of(uint32_t index) const {
  const uint64_t before = uint64_t{index} * kPieceBytes;
  return static_cast<size_t>(std::min<uint64_t>(kPieceBytes, frame_size - before));
}

std::optional<codec::MemberFrame> member_in(std::string_view value) {
  const auto head = PieceHead::parse(value.substr(0, kPieceHeadSize));
  if (!head || head->pieces != 1 || head->frame_size != codec::kMemberFrameSize) return std::nullopt;
  return codec::MemberFrame::parse(value.substr(kPieceHeadSize, codec::kMemberFrameSize));
}

std::string piece_key(std::string_view prefix, const codec::Digest& digest, uint32_t index) {
  std::string key(prefix);
  key += ":b:";
  key += digest.raw();
  if (index > 0) key += ":" + std::to_string(index);
  return key;
}

}  // namespace inductorfs::remote
