// SPDX-License-Identifier: Apache-2.0
#include "remote/formats/piece.h"

#include <gtest/gtest.h>

namespace inductorfs::remote {
namespace {

TEST(PieceHead, SaysHowManyPiecesAFrameHasAndHowLongEachIs) {
  EXPECT_EQ(PieceHead::of(1).pieces, 1U);
  EXPECT_EQ(PieceHead::of(kPieceBytes).pieces, 1U);
  EXPECT_EQ(PieceHead::of(kPieceBytes + 1).pieces, 2U);
  const PieceHead head = PieceHead::of(2 * kPieceBytes + 5);
  EXPECT_EQ(head.pieces, 3U);
  EXPECT_EQ(head.size_of(0), kPieceBytes);
  EXPECT_EQ(head.size_of(1), kPieceBytes);
  EXPECT_EQ(head.size_of(2), 5U);
  EXPECT_EQ(PieceHead::of(2 * kPieceBytes).size_of(1), kPieceBytes);
}

TEST(PieceHead, SurvivesItsOwnEncoding) {
  for (const uint64_t size : {uint64_t{1}, uint64_t{kPieceBytes}, uint64_t{123456789}, kFrameSizeLimit}) {
    const PieceHead head = PieceHead::of(size);
    const std::string bytes = head.encode();
    EXPECT_EQ(bytes.size(), kPieceHeadSize);
    EXPECT_EQ(PieceHead::parse(bytes + "frame"), head);
  }
}

TEST(PieceHead, HasTheFormThatTheDocumentsSay) {
  EXPECT_EQ(PieceHead::of(0x0102).encode(), std::string("IFSP\x01\x01\0\0\0\x02\x01\0\0\0\0\0\0", 17));
}

TEST(PieceHead, RefusesWhatIsNone) {
  const std::string good = PieceHead::of(100).encode();
  EXPECT_FALSE(PieceHead::parse(""));
  EXPECT_FALSE(PieceHead::parse(good.substr(0, kPieceHeadSize - 1)));
  for (size_t i = 0; i < 9; ++i) {  // magic, version and the number of pieces
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] + 1);
    EXPECT_FALSE(PieceHead::parse(bad)) << i;
  }
  EXPECT_FALSE(PieceHead::parse(PieceHead{0, 0}.encode()));
  EXPECT_FALSE(PieceHead::parse(PieceHead::of(kFrameSizeLimit + 1).encode()));
}

TEST(PieceHead, TellsANewerVersionFromDamage) {
  std::string head = PieceHead::of(100).encode();
  EXPECT_FALSE(PieceHead::is_newer(head));
  head[4] = 2;
  EXPECT_TRUE(PieceHead::is_newer(head));
  EXPECT_TRUE(PieceHead::is_newer(head.substr(0, 5))) << "whose head may have another length";
  EXPECT_FALSE(PieceHead::is_newer(head.substr(0, 4)));
  head[4] = 0;
  EXPECT_FALSE(PieceHead::is_newer(head));
  head[0] = 'X';
  head[4] = 2;
  EXPECT_FALSE(PieceHead::is_newer(head));
}

TEST(PieceHead, LeavesRoomInTheValueForItself) {
  EXPECT_EQ(PieceHead::of(kPieceBytes).encode().size() + kPieceBytes, kValueLimit);
}

TEST(PieceKey, HoldsTheRawDigest) {
  const codec::Digest digest = codec::digest_of("x");
  EXPECT_EQ(piece_key("ifs1", digest, 0), "ifs1:b:" + std::string(digest.raw()));
  EXPECT_EQ(piece_key("ifs1", digest, 12), "ifs1:b:" + std::string(digest.raw()) + ":12");
}

}  // namespace
}  // namespace inductorfs::remote
