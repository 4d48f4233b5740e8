// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/codec/entry.h"

#include <gtest/gtest.h>

#include <random>

#include "inductorfs/base/encoding.h"

namespace inductorfs::codec {
namespace {

constexpr int kTrials = 10'000;

Entry sample() {
  Entry entry;
  entry.path = "fxgraph/ab/fabc/xyz";
  entry.digest = digest_of("hello");
  entry.size = 5;
  entry.mode = 0755;
  entry.mtime_ns = -2;
  entry.origin = "node1/7";
  return entry;
}

LogRecord sample_record() {
  LogRecord record;
  record.set.push_back(sample());
  record.set.push_back(sample());
  record.set.back().path = "triton/KEY/k.cubin";
  record.removed = {"a", "b/c"};
  return record;
}

const std::string kEntryHex =
    "02"
    "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    "0500000000000000"
    "ed01"
    "feffffffffffffff"
    "07"
    "6e6f6465312f37";

/// A value or record as one who makes the check fit would send it.
std::string checked(std::string bytes, std::string_view path = {}) {
  append_integer(bytes, crc32(path, crc32(bytes)));
  return bytes;
}
std::string unchecked(const std::string& bytes) { return bytes.substr(0, bytes.size() - sizeof(uint32_t)); }

TEST(Entry, BytesAreTheDocumentedOnes) {
  EXPECT_EQ(to_hex(unchecked(encode_entry(sample()))), kEntryHex);
  EXPECT_EQ(encode_entry(sample()), checked(*from_hex(kEntryHex), sample().path));
  EXPECT_EQ(decode_entry(sample().path, checked(*from_hex(kEntryHex), sample().path)).value(), sample());
}

TEST(Entry, ExtremesRoundTrip) {
  Entry entry;
  entry.path = std::string(kPathLimit, 'p');
  entry.size = INT64_MAX;
  entry.mode = 0777;
  entry.mtime_ns = INT64_MIN;
  entry.origin = std::string(kOriginLimit, 'o');
  EXPECT_EQ(decode_entry(entry.path, encode_entry(entry)).value(), entry);
  entry.origin.clear();
  entry.mode = 0;
  entry.mtime_ns = INT64_MAX;
  EXPECT_EQ(decode_entry(entry.path, encode_entry(entry)).value(), entry);
}

TEST(Entry, EncoderCutsWhatReadersWouldRefuse) {
  Entry entry = sample();
  entry.mode = 0104755;  // a regular file with set-user-id
  entry.origin = "evil\x1b[2J\n" + std::string(500, 'x');
  const auto decoded = decode_entry(entry.path, encode_entry(entry));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->mode, 0755U);
  EXPECT_EQ(decoded->origin.substr(0, 9), "evil?[2J?");
  EXPECT_EQ(decoded->origin.size(), kOriginLimit);
}

TEST(Entry, EveryTruncationAndEveryExtensionIsCorrupt) {
  const std::string value = encode_entry(sample());
  for (size_t size = 0; size < value.size(); ++size) {
    const auto decoded = decode_entry(sample().path, value.substr(0, size));
    ASSERT_FALSE(decoded) << size;
    EXPECT_EQ(decoded.error().code(), ErrorCode::kCorrupt);
    const bool whole = size == unchecked(value).size();
    EXPECT_EQ(decode_entry(sample().path, checked(value.substr(0, size), sample().path)).has_value(), whole) << size;
  }
  EXPECT_FALSE(decode_entry(sample().path, value + "x"));
}

TEST(Entry, LimitsOfFieldsAreHeld) {
  const std::string good = unchecked(encode_entry(sample()));
  const auto with = [&](size_t at, char byte) {
    std::string bad = good;
    bad[at] = byte;
    return decode_entry("a", checked(bad, "a"));
  };
  EXPECT_TRUE(with(0, 2));
  EXPECT_EQ(with(0, 0).error().code(), ErrorCode::kCorrupt) << "no version";
  EXPECT_EQ(with(0, 1).error().code(), ErrorCode::kNotSupported)
      << "an older version: a release that reads it may live";
  EXPECT_EQ(with(0, 3).error().code(), ErrorCode::kNotSupported) << "a newer version";
  EXPECT_FALSE(with(40, '\x80')) << "size beyond what off_t holds";
  EXPECT_FALSE(with(42, 0x0b)) << "set-user-id";
  EXPECT_FALSE(with(52, '\n')) << "origin must be printable";
  Entry entry = sample();
  entry.origin = std::string(kOriginLimit, 'o');
  std::string over = unchecked(encode_entry(entry)) + "o";
  over[51] = static_cast<char>(kOriginLimit + 1);
  EXPECT_FALSE(decode_entry("a", checked(over, "a"))) << "origin over its limit";
}

TEST(Entry, UncleanPathsAreCorrupt) {
  const std::string value = unchecked(encode_entry(sample()));
  for (const std::string& path : {std::string(), std::string("/a"), std::string("a/"), std::string("a//b"),
                                  std::string("."), std::string("a/./b"), std::string(".."), std::string("a/../b"),
                                  std::string("a\0b", 3), std::string(kPathLimit + 1, 'x')}) {
    EXPECT_FALSE(is_clean_path(path)) << path;
    EXPECT_FALSE(decode_entry(path, checked(value, path))) << path;
  }
  for (const char* path : {"a", "a/b", "...", "a/..b", ".hidden", "a b", "\xc3\xbc"}) {
    EXPECT_TRUE(is_clean_path(path));
    EXPECT_TRUE(decode_entry(path, checked(value, path))) << path;
  }
}

TEST(Entry, IsNoEntryOfAnotherPath) { EXPECT_FALSE(decode_entry("fxgraph/ab/fabc/xyy", encode_entry(sample()))); }

TEST(Record, BytesAreTheDocumentedOnes) {
  LogRecord record;
  record.set.push_back(sample());
  record.set.back().path = "ab";
  record.removed = {"c"};
  EXPECT_EQ(encode_record(record), checked(*from_hex("0202000000"
                                                     "5302006162"
                                                     "3f00" +
                                                     to_hex(encode_entry(record.set.back())) + "44010063")));
}

TEST(Record, RoundTrips) {
  EXPECT_EQ(decode_record(encode_record(sample_record())).value(), sample_record());
  EXPECT_EQ(decode_record(encode_record({})).value(), LogRecord{});
}

TEST(Record, EveryTruncationIsCorrupt) {
  const std::string bytes = encode_record(sample_record());
  for (size_t size = 0; size < bytes.size(); ++size) {
    ASSERT_FALSE(decode_record(bytes.substr(0, size))) << size;
    const bool whole = size == unchecked(bytes).size();
    ASSERT_EQ(decode_record(checked(bytes.substr(0, size))).has_value(), whole) << size;
  }
  EXPECT_FALSE(decode_record(bytes + std::string(1, '\0')));
  EXPECT_FALSE(decode_record(checked(unchecked(bytes) + std::string(1, '\0'))));
}

TEST(Record, HugeCountIsRefusedBeforeAnythingIsAllocated) {
  EXPECT_FALSE(decode_record(checked(std::string("\x02\xff\xff\xff\xff", 5))));
  std::string over("\x02", 1);
  append_integer(over, static_cast<uint32_t>(kRecordEntryLimit + 1));
  for (size_t i = 0; i <= kRecordEntryLimit; ++i) over += std::string("D\x01\0a", 4);
  EXPECT_FALSE(decode_record(checked(over)));
}

TEST(Record, SetAfterDeleteIsCorrupt) {
  Entry entry = sample();
  entry.path = "b";
  const std::string value = encode_entry(entry);
  std::string set("S\x01\0b", 4);
  append_integer(set, static_cast<uint16_t>(value.size()));
  const std::string head("\x02\x02\0\0\0", 5);
  const std::string removal("D\x01\0a", 4);
  EXPECT_TRUE(decode_record(checked(head + set + value + removal)));
  EXPECT_FALSE(decode_record(checked(head + removal + set + value)));
}

TEST(Record, FullRecordRoundTrips) {
  LogRecord record;
  for (size_t i = 0; i < kRecordEntryLimit; ++i) {
    record.set.push_back(sample());
    record.set.back().path = "p" + std::to_string(i);
  }
  EXPECT_EQ(decode_record(encode_record(record)).value(), record);
}

/// Up to three flipped bits, or a cut, or both. Equal to `good` only when two flips met.
std::string damaged(const std::string& good, std::mt19937& random) {
  std::string bad = good;
  const uint32_t kind = random() % 4;
  if (kind == 0) bad.resize(random() % good.size());
  for (size_t flips = random() % 3 + 1; kind != 1 && flips > 0 && !bad.empty(); --flips) {
    bad[random() % bad.size()] ^= static_cast<char>(1U << random() % 8);
  }
  if (kind == 1) bad[random() % bad.size()] ^= static_cast<char>(random() % 255 + 1);
  return bad;
}

TEST(Entry, AllOfTenThousandDamagedValuesAreRefused) {
  std::mt19937 random(20260101);
  const std::string good = encode_entry(sample());
  for (int i = 0; i < kTrials; ++i) {
    const std::string bad = damaged(good, random);
    ASSERT_EQ(decode_entry(sample().path, bad).has_value(), bad == good) << i << ' ' << to_hex(bad);
    const std::string path = damaged(sample().path, random);
    ASSERT_EQ(decode_entry(path, good).has_value(), path == sample().path) << i << ' ' << path;
  }
}

TEST(Record, AllOfTenThousandDamagedRecordsAreRefused) {
  std::mt19937 random(20260102);
  const std::string good = encode_record(sample_record());
  for (int i = 0; i < kTrials; ++i) {
    const std::string bad = damaged(good, random);
    ASSERT_EQ(decode_record(bad).has_value(), bad == good) << i << ' ' << to_hex(bad);
  }
}

/// A check that fits proves nothing: it is for accidents. Nothing is accepted that is not the one encoding of what came
/// out.
TEST(Entry, DamageWithAFittingCheckIsRefusedOrIsAnotherEntryExactly) {
  std::mt19937 random(20260104);
  const std::string good = unchecked(encode_entry(sample()));
  for (int i = 0; i < kTrials; ++i) {
    const std::string bad = checked(damaged(good, random), "a");
    const auto decoded = decode_entry("a", bad);
    ASSERT_TRUE(!decoded || encode_entry(*decoded) == bad) << to_hex(bad);
  }
}

TEST(Record, DamageWithAFittingCheckIsRefusedOrIsAnotherRecordExactly) {
  std::mt19937 random(20260105);
  const std::string good = unchecked(encode_record(sample_record()));
  for (int i = 0; i < kTrials; ++i) {
    const std::string bad = checked(damaged(good, random));
    const auto decoded = decode_record(bad);
    ASSERT_TRUE(!decoded || encode_record(*decoded) == bad) << to_hex(bad);
  }
}

TEST(Record, RandomBytesAreRefused) {
  std::mt19937 random(20260103);
  for (int i = 0; i < kTrials; ++i) {
    std::string bytes(random() % 200, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    if (bytes.size() > 5) bytes.replace(0, 5, std::string("\x02\x02\0\0\0", 5));
    EXPECT_FALSE(decode_record(bytes));
    const auto decoded = decode_record(checked(bytes));
    ASSERT_TRUE(!decoded || encode_record(*decoded) == checked(bytes)) << to_hex(bytes);
  }
}

}  // namespace
}  // namespace inductorfs::codec
