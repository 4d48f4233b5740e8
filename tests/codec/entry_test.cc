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
    "01"
    "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    "0500000000000000"
    "ed01"
    "feffffffffffffff"
    "07"
    "6e6f6465312f37";

TEST(Entry, BytesAreTheDocumentedOnes) {
  EXPECT_EQ(to_hex(encode_entry(sample())), kEntryHex);
  EXPECT_EQ(decode_entry(sample().path, *from_hex(kEntryHex)).value(), sample());
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
    const auto decoded = decode_entry("a", value.substr(0, size));
    ASSERT_FALSE(decoded) << size;
    EXPECT_EQ(decoded.error().code(), ErrorCode::kCorrupt);
  }
  EXPECT_FALSE(decode_entry("a", value + "x"));
}

TEST(Entry, LimitsOfFieldsAreHeld) {
  const std::string good = encode_entry(sample());
  const auto with = [&](size_t at, char byte) {
    std::string bad = good;
    bad[at] = byte;
    return decode_entry("a", bad);
  };
  EXPECT_FALSE(with(0, 2)) << "version";
  EXPECT_FALSE(with(40, '\x80')) << "size beyond what off_t holds";
  EXPECT_FALSE(with(42, 0x0b)) << "set-user-id";
  EXPECT_FALSE(with(52, '\n')) << "origin must be printable";
  Entry entry = sample();
  entry.origin = std::string(kOriginLimit, 'o');
  std::string over = encode_entry(entry) + "o";
  over[51] = static_cast<char>(kOriginLimit + 1);
  EXPECT_FALSE(decode_entry("a", over)) << "origin over its limit";
}

TEST(Entry, UncleanPathsAreCorrupt) {
  const std::string value = encode_entry(sample());
  for (const std::string& path : {std::string(), std::string("/a"), std::string("a/"), std::string("a//b"),
                                  std::string("."), std::string("a/./b"), std::string(".."), std::string("a/../b"),
                                  std::string("a\0b", 3), std::string(kPathLimit + 1, 'x')}) {
    EXPECT_FALSE(is_clean_path(path)) << path;
    EXPECT_FALSE(decode_entry(path, value)) << path;
  }
  for (const char* path : {"a", "a/b", "...", "a/..b", ".hidden", "a b", "\xc3\xbc"}) EXPECT_TRUE(is_clean_path(path));
}

TEST(Record, BytesAreTheDocumentedOnes) {
  LogRecord record;
  record.set.push_back(sample());
  record.set.back().path = "ab";
  record.removed = {"c"};
  EXPECT_EQ(to_hex(encode_record(record)),
            "0102000000"
            "5302006162"
            "3b00" +
                kEntryHex + "44010063");
}

TEST(Record, RoundTrips) {
  EXPECT_EQ(decode_record(encode_record(sample_record())).value(), sample_record());
  EXPECT_EQ(decode_record(encode_record({})).value(), LogRecord{});
}

TEST(Record, EveryTruncationIsCorrupt) {
  const std::string bytes = encode_record(sample_record());
  for (size_t size = 0; size < bytes.size(); ++size) ASSERT_FALSE(decode_record(bytes.substr(0, size))) << size;
  EXPECT_FALSE(decode_record(bytes + std::string(1, '\0')));
}

TEST(Record, HugeCountIsRefusedBeforeAnythingIsAllocated) {
  EXPECT_FALSE(decode_record(std::string("\x01\xff\xff\xff\xff", 5)));
  std::string over("\x01", 1);
  append_integer(over, static_cast<uint32_t>(kRecordEntryLimit + 1));
  for (size_t i = 0; i <= kRecordEntryLimit; ++i) over += std::string("D\x01\0a", 4);
  EXPECT_FALSE(decode_record(over));
}

TEST(Record, SetAfterDeleteIsCorrupt) {
  const std::string value = encode_entry(sample());
  std::string bytes("\x01\x02\0\0\0D\x01\0aS\x01\0b", 13);
  append_integer(bytes, static_cast<uint16_t>(value.size()));
  EXPECT_FALSE(decode_record(bytes + value));
}

TEST(Record, FullRecordRoundTrips) {
  LogRecord record;
  for (size_t i = 0; i < kRecordEntryLimit; ++i) {
    record.set.push_back(sample());
    record.set.back().path = "p" + std::to_string(i);
  }
  EXPECT_EQ(decode_record(encode_record(record)).value(), record);
}

/// A flipped byte of an entry may give another valid entry (the digest of the blob it names then does not exist). What
/// must hold: nothing is accepted that is not the one encoding of what came out.
TEST(Entry, RandomDamageIsRefusedOrIsAnotherEntryExactly) {
  std::mt19937 random(20260101);
  const std::string good = encode_entry(sample());
  int refused = 0;
  for (int i = 0; i < kTrials; ++i) {
    std::string bad = good.substr(0, i % 4 == 0 ? random() % good.size() : good.size());
    for (size_t flips = random() % 3 + 1; flips > 0 && !bad.empty(); --flips) {
      bad[random() % bad.size()] ^= static_cast<char>(1U << random() % 8);
    }
    const auto decoded = decode_entry("a", bad);
    if (decoded) {
      ASSERT_EQ(encode_entry(*decoded), bad);
    } else {
      ++refused;
    }
  }
  EXPECT_GT(refused, kTrials / 4) << "all truncations at least";
}

TEST(Record, RandomDamageIsRefusedOrIsAnotherRecordExactly) {
  std::mt19937 random(20260102);
  const std::string good = encode_record(sample_record());
  int refused = 0;
  for (int i = 0; i < kTrials; ++i) {
    std::string bad = good.substr(0, i % 4 == 0 ? random() % good.size() : good.size());
    for (size_t flips = random() % 3 + 1; flips > 0 && !bad.empty(); --flips) {
      bad[random() % bad.size()] ^= static_cast<char>(1U << random() % 8);
    }
    const auto decoded = decode_record(bad);
    if (decoded) {
      ASSERT_EQ(encode_record(*decoded), bad);
    } else {
      ++refused;
    }
  }
  EXPECT_GT(refused, kTrials / 4);
}

TEST(Record, RandomBytesAreRefused) {
  std::mt19937 random(20260103);
  for (int i = 0; i < kTrials; ++i) {
    std::string bytes(random() % 200, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    if (bytes.size() > 5) bytes.replace(0, 5, std::string("\x01\x02\0\0\0", 5));
    const auto decoded = decode_record(bytes);
    if (decoded) {
      ASSERT_EQ(encode_record(*decoded), bytes);
    }
  }
}

}  // namespace
}  // namespace inductorfs::codec
