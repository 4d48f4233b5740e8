// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/encoding.h"

#include <gtest/gtest.h>

namespace inductorfs {
namespace {

TEST(AppendInteger, IsLittleEndian) {
  std::string out;
  append_integer(out, uint8_t{0xab});
  append_integer(out, uint16_t{0x0102});
  append_integer(out, uint64_t{0x1122334455667788});
  EXPECT_EQ(to_hex(out), "ab02018877665544332211");
}

TEST(ByteReader, ReadsBackWhatWasAppended) {
  std::string out;
  append_integer(out, uint32_t{0xdeadbeef});
  append_integer(out, static_cast<uint64_t>(int64_t{-2}));
  out += "tail";
  ByteReader reader(out);
  EXPECT_EQ(reader.integer<uint32_t>(), 0xdeadbeefU);
  EXPECT_EQ(static_cast<int64_t>(reader.integer<uint64_t>()), -2);
  EXPECT_FALSE(reader.complete()) << "the tail is still there";
  EXPECT_EQ(reader.left(), 4U);
  EXPECT_EQ(reader.bytes(4), "tail");
  EXPECT_TRUE(reader.complete());
}

TEST(ByteReader, FailsForGoodWhenAskedForTooMuch) {
  ByteReader reader("abc");
  EXPECT_EQ(reader.integer<uint32_t>(), 0U);
  EXPECT_TRUE(reader.failed());
  EXPECT_EQ(reader.bytes(1), "") << "a failed reader does not hand out bytes of a broken value";
  EXPECT_EQ(reader.left(), 0U);
  EXPECT_FALSE(reader.complete());
}

TEST(ByteReader, HugeLengthsDoNotWrapAround) {
  ByteReader reader("abc");
  EXPECT_EQ(reader.bytes(static_cast<size_t>(-1)), "");
  EXPECT_TRUE(reader.failed());
}

TEST(Crc32, IsTheOneOfIeee8023AndCanBeContinued) {
  EXPECT_EQ(crc32(""), 0U);
  EXPECT_EQ(crc32("123456789"), 0xcbf43926U);
  EXPECT_EQ(crc32("56789", crc32("1234")), 0xcbf43926U);
  // Of other lengths, from zlib (Python's zlib.crc32).
  EXPECT_EQ(crc32(std::string(32, '\0')), 0x190a55adU);
  EXPECT_EQ(crc32(std::string(32, '\xff')), 0xff6cab0bU);
  std::string text;
  uint32_t piecewise = 0;
  for (int i = 0; i < 256; ++i) {
    EXPECT_EQ(crc32(text), piecewise) << i;
    text.push_back(static_cast<char>(i));
    piecewise = crc32({&text.back(), 1}, piecewise);
  }
  EXPECT_EQ(crc32(text), 0x29058c73U);
}

TEST(Hex, RoundTripsAllBytes) {
  std::string all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
  EXPECT_EQ(from_hex(to_hex(all)), all);
}

TEST(Hex, RefusesWhatIsNotOneSpelling) {
  EXPECT_EQ(from_hex("abc"), std::nullopt);
  EXPECT_EQ(from_hex("AB"), std::nullopt);
  EXPECT_EQ(from_hex("0g"), std::nullopt);
  EXPECT_EQ(from_hex(" 1"), std::nullopt);
  EXPECT_EQ(from_hex(""), "");
}

TEST(Base32, AgreesWithRfc4648) {
  EXPECT_EQ(to_base32(""), "");
  EXPECT_EQ(to_base32("f"), "my");
  EXPECT_EQ(to_base32("fo"), "mzxq");
  EXPECT_EQ(to_base32("foo"), "mzxw6");
  EXPECT_EQ(to_base32("foob"), "mzxw6yq");
  EXPECT_EQ(to_base32("fooba"), "mzxw6ytb");
  EXPECT_EQ(to_base32("foobar"), "mzxw6ytboi");
}

}  // namespace
}  // namespace inductorfs
