// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/codec/solid_block.h"

#include <gtest/gtest.h>

namespace inductorfs::codec {
namespace {

const MemberFrame kMember{digest_of("member"), 6, digest_of("a member and more"), 2};

TEST(SolidBlock, AMemberFrameIsReadAsItWasWritten) {
  const std::string frame = kMember.encode();
  EXPECT_EQ(frame.size(), kMemberFrameSize);
  EXPECT_EQ(MemberFrame::parse(frame), kMember);
}

TEST(SolidBlock, WhatIsCutLongerOrOfAnotherKindIsNoMemberFrame) {
  const std::string frame = kMember.encode();
  for (size_t size = 0; size < frame.size(); ++size) EXPECT_FALSE(MemberFrame::parse(frame.substr(0, size))) << size;
  EXPECT_FALSE(MemberFrame::parse(frame + "x"));
  for (size_t i = 0; i < 8; ++i) {  // magic, version, codec, reserved
    std::string other = frame;
    other[i] = static_cast<char>(other[i] ^ 4);
    EXPECT_FALSE(MemberFrame::parse(other)) << i;
  }
  EXPECT_FALSE(MemberFrame::parse(encode_frame(std::string(kMemberFrameSize - kFrameHeaderSize, 'x')).value()));
}

TEST(SolidBlock, AMemberLiesWithinTheLimit) {
  const auto parsed = [](uint64_t size, uint64_t offset) {
    return MemberFrame::parse(MemberFrame{kMember.digest, size, kMember.block, offset}.encode()).has_value();
  };
  EXPECT_TRUE(parsed(kSolidBlockLimit, 0));
  EXPECT_TRUE(parsed(0, kSolidBlockLimit));
  EXPECT_FALSE(parsed(kSolidBlockLimit + 1, 0));
  EXPECT_FALSE(parsed(1, kSolidBlockLimit));
  EXPECT_FALSE(parsed(2, ~uint64_t{0}));
  EXPECT_FALSE(parsed(~uint64_t{0}, 2));
}

TEST(SolidBlock, TheBytesOfAMemberAreCutFromItsBlock) {
  EXPECT_EQ(kMember.cut("a member and more"), "member");
  EXPECT_EQ(kMember.cut("a member"), "member");
  EXPECT_FALSE(kMember.cut("a membe"));
  EXPECT_FALSE(kMember.cut(""));
}

TEST(SolidBlock, ADecoderOfFramesTakesNoMemberForABlob) {
  const auto decoded = decode_frame(kMember.encode(), kMember.digest, kSolidBlockLimit);
  ASSERT_FALSE(decoded);
  EXPECT_EQ(decoded.error().code(), ErrorCode::kCorrupt);
}

TEST(SolidBlock, AStoredFrameHasTheBytesBehindItsHeader) {
  const std::string bytes = "bytes as they are";
  const Digest digest = digest_of(bytes);
  EXPECT_EQ(decode_frame(stored_frame_header(digest, bytes.size()) + bytes, digest, 100), bytes);
}

}  // namespace
}  // namespace inductorfs::codec
