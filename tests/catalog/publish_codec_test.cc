// SPDX-License-Identifier: Apache-2.0
#include "publish_codec.h"

#include <gtest/gtest.h>

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

TEST(PublishCodec, GivesBackWhatWasPutIn) {
  for (const auto kind :
       {Publish::Kind::kPlain, Publish::Kind::kFirst, Publish::Kind::kCandidate, Publish::Kind::kMerge}) {
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
  }
  EXPECT_FALSE(decode_publish(whole + "x"));
}

TEST(PublishCodec, NoSingleByteMakesItReadBeyondItsEndOrAskForMuchMemory) {
  const std::string whole = encode_publish(sample());
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(0xff);
    (void)decode_publish(damaged);  // any answer, under the sanitizers
  }
}

TEST(PublishCodec, UnknownVersionAndKindAreCorrupt) {
  std::string version = encode_publish(sample());
  version[0] = 2;
  EXPECT_FALSE(decode_publish(version));
  std::string kind = encode_publish(sample());
  kind[1] = 9;
  EXPECT_FALSE(decode_publish(kind));
}

TEST(PublishCodec, AGroupWithoutEntriesIsCorrupt) {
  Publish publish = sample();
  publish.entries.clear();
  EXPECT_FALSE(decode_publish(encode_publish(publish)));
}

}  // namespace
}  // namespace inductorfs::catalog
