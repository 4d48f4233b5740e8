// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/codec/solid_block.h"

#include "frame_layout.h"
#include "inductorfs/base/encoding.h"

namespace inductorfs::codec {

std::string MemberFrame::encode() const {
  std::string frame = frame_header(kCodecMember, size, digest);
  frame.append(block.raw());
  append_integer(frame, offset);
  return frame;
}

std::optional<MemberFrame> MemberFrame::parse(std::string_view frame) {
  ByteReader reader(frame);
  const bool is_member = reader.bytes(kFrameMagic.size()) == kFrameMagic &&
                         reader.integer<uint8_t>() == kFrameVersion && reader.integer<uint8_t>() == kCodecMember &&
                         reader.integer<uint16_t>() == 0;
  MemberFrame member;
  member.size = reader.integer<uint64_t>();
  const auto digest = Digest::from_raw(reader.bytes(Digest::kSize));
  const auto block = Digest::from_raw(reader.bytes(Digest::kSize));
  member.offset = reader.integer<uint64_t>();
  if (!is_member || !reader.complete() || !digest || !block) return std::nullopt;
  if (member.size > kSolidBlockLimit || member.offset > kSolidBlockLimit - member.size) return std::nullopt;
  member.digest = *digest;
  member.block = *block;
  return member;
}

std::optional<std::string_view> MemberFrame::cut(std::string_view block_bytes) const {
  if (offset > block_bytes.size() || size > block_bytes.size() - offset) return std::nullopt;
  return block_bytes.substr(offset, size);
}

std::string stored_frame_header(const Digest& digest, uint64_t raw_size) {
  return frame_header(kCodecStored, raw_size, digest);
}

}  // namespace inductorfs::codec
