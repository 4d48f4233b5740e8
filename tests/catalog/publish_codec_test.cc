// SPDX-License-Identifier: Apache-2.0
#include "catalog/database/publish_codec.h"

#include <gtest/gtest.h>

#include <random>

#include "inductorfs/base/encoding.h"

namespace inductorfs::catalog {
namespace {

Publish sample() {
  Publish publish;
  publish.kind = Publish::Kind::kCandidate;
  publish.scope = std::string(64, 'a');
  publish.contest = "fxgraph/ab/key";
  publish.seen = {"fxgraph/ab/key/one", std::string("not\xff") + "utf8"};
  publish.entries = {{"fxgraph/ab/key/two", codec::digest_of("two"), 3, 0755, -5, "host/mount"},
                     {"fxgraph/ab/key/three", codec::digest_of("three"), 5, 0600, 7, ""}};
  return publish;
}

/// With a check that fits, as one who means harm would write it.
std::string checked(std::string bytes) {
  append_integer(bytes, crc32(bytes));
  return bytes;
}
std::string unchecked(const std::string& payload) { return payload.substr(0, payload.size() - sizeof(uint32_t)); }

TEST(PublishCodec, GivesBackWhatWasPutIn) {
  for (const auto kind : {Publish::Kind::kPlain, Publish::Kind::kFirst, Publish::Kind::kCandidate,
                          Publish::Kind::kMerge, Publish::Kind::kFirstOfPath}) {
    Publish given = sample();
    given.kind = kind;
    const auto back = decode_publish(encode_publish(given));
    ASSERT_TRUE(back) << back.error().to_string();
    EXPECT_EQ(back->kind, given.kind);
    EXPECT_EQ(back->scope, given.scope);
    EXPECT_EQ(back->contest, given.contest);
    EXPECT_EQ(back->seen, given.seen);
    EXPECT_EQ(back->entries, given.entries);
  }
}

TEST(PublishCodec, EveryCutIsCorrupt) {
  const std::string whole = encode_publish(sample());
  for (size_t length = 0; length < whole.size(); ++length) {
    const auto decoded = decode_publish(whole.substr(0, length));
    ASSERT_FALSE(decoded) << length;
    EXPECT_EQ(decoded.error().code(), ErrorCode::kCorrupt);
    ASSERT_EQ(decode_publish(checked(whole.substr(0, length))).has_value(), length == unchecked(whole).size());
  }
  EXPECT_FALSE(decode_publish(whole + "x"));
  EXPECT_FALSE(decode_publish(checked(unchecked(whole) + "x")));
}

TEST(PublishCodec, NoSingleByteMakesItReadBeyondItsEndOrAskForMuchMemory) {
  const std::string whole = unchecked(encode_publish(sample()));
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(0xff);
    (void)decode_publish(checked(damaged));  // any answer, under the sanitizers
  }
}

TEST(PublishCodec, AllOfTenThousandDamagedPayloadsAreRefused) {
  std::mt19937 random(20260106);
  const std::string good = encode_publish(sample());
  for (int i = 0; i < 10'000; ++i) {
    std::string bad = good;
    if (i % 4 == 0) bad.resize(random() % good.size());
    for (size_t flips = random() % 3 + 1; flips > 0 && !bad.empty(); --flips) {
      bad[random() % bad.size()] ^= static_cast<char>(1U << random() % 8);
    }
    ASSERT_EQ(decode_publish(bad).has_value(), bad == good) << i << ' ' << to_hex(bad);
  }
}

TEST(PublishCodec, UnknownVersionAndKindAreCorrupt) {
  const std::string good = unchecked(encode_publish(sample()));
  for (const char version : {'\0', '\1', '\3'}) {
    std::string other = good;
    other[0] = version;
    EXPECT_FALSE(decode_publish(checked(other)));
  }
  std::string kind = good;
  EXPECT_TRUE(decode_publish(checked(kind)));
  kind[1] = 9;
  EXPECT_FALSE(decode_publish(checked(kind)));
}

TEST(PublishCodec, AGroupWithoutEntriesIsCorrupt) {
  Publish publish = sample();
  publish.entries.clear();
  EXPECT_FALSE(decode_publish(encode_publish(publish)));
}

}  // namespace
}  // namespace inductorfs::catalog
