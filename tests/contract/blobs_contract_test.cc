// SPDX-License-Identifier: Apache-2.0
// Blobs (remote/blobs.h) over each cluster.
#include <gtest/gtest.h>

#include "clusters.h"
#include "remote/gather_fixture.h"

namespace inductorfs::remote {
namespace {

using BlobsContract = OverPublishers;

TEST_P(BlobsContract, BlobsOfAnySizeComeBackByteForByte) {
  std::vector<codec::Entry> entries;
  std::vector<codec::Digest> digests;
  uint32_t seed = 0;
  constexpr size_t kPiece = (1 << 20) - 64 - 17;
  for (const size_t size : {size_t{1}, size_t{65536 - 18}, size_t{65536 - 17}, size_t{65536 - 16}, size_t{65537},
                            kPiece - 1, kPiece, kPiece + 1, 2 * kPiece, 9 * kPiece + 5}) {
    digests.push_back(source.add(test_bytes(size, ++seed)));
    entries.push_back(entry_of("blob/" + std::to_string(size), digests.back()));
  }
  for (uint32_t i = 0; i < 200; ++i) {
    digests.push_back(source.add(test_bytes(100 + i, 1000 + i)));
    entries.push_back(entry_of("small/" + std::to_string(i), digests.back()));
  }
  ASSERT_EQ(publish(group_of(scope, entries)), PublishOutcome::kPublished);
  const FakeSink sink = fetch(digests);
  for (const codec::Digest& digest : digests) {
    ASSERT_EQ(sink.error_of(digest), std::nullopt) << source.frame(digest).size();
    EXPECT_TRUE(sink.frames.at(digest) == source.frame(digest)) << source.frame(digest).size();
  }
}

TEST_P(BlobsContract, AnswersEachDigestOnceAlsoWhenSomeAreMissing) {
  const auto there = entry("a", "bytes");
  ASSERT_EQ(publish(group_of(scope, {there})), PublishOutcome::kPublished);
  const codec::Digest absent = codec::digest_of("never stored");
  const FakeSink sink = fetch({absent, there.digest, absent, there.digest});
  EXPECT_EQ(sink.outcomes.size(), 2U);
  EXPECT_EQ(sink.error_of(absent), ErrorCode::kNotFound);
  EXPECT_EQ(sink.error_of(there.digest), std::nullopt);
  EXPECT_TRUE(fetch({}).outcomes.empty());
}

TEST_P(BlobsContract, ARefusalOfTheSinkEndsThatBlobOnly) {
  const auto first = entry("a", test_bytes(3'000'000, 1));
  const auto second = entry("b", test_bytes(3'000'000, 2));
  const auto third = entry("c", "small");
  ASSERT_EQ(publish(group_of(scope, {first, second, third})), PublishOutcome::kPublished);
  FakeSink sink;
  sink.refuse = first.digest;
  const std::vector<codec::Digest> digests = {first.digest, second.digest, third.digest};
  other.blobs->fetch(digests, sink, soon());
  EXPECT_EQ(sink.error_of(first.digest), ErrorCode::kNoSpace);
  EXPECT_EQ(sink.error_of(second.digest), std::nullopt);
  EXPECT_EQ(sink.frames.at(second.digest), source.frame(second.digest));
  EXPECT_EQ(sink.error_of(third.digest), std::nullopt);
}

TEST_P(BlobsContract, BlobsThatAreGatheredComeBackAsBefore) {
  FramedSource framed;
  std::vector<codec::Entry> entries;
  std::vector<codec::Digest> digests;
  std::vector<std::string> texts;
  for (uint32_t i = 0; i < 30; ++i) {
    texts.push_back(i == 7 ? "" : i == 8 ? std::string(900'000, 'x') : like_text(i));
    digests.push_back(framed.add(texts.back()));
    entries.push_back(entry_of("like/" + std::to_string(i), digests.back()));
  }
  ASSERT_TRUE(remote.index->publish(group_of(scope, entries), framed, soon()));
  digests.push_back(codec::digest_of("never stored"));
  const auto report = remote.blobs->gather(digests, soon());
  ASSERT_TRUE(report) << report.error().to_string();
  digests.pop_back();
  EXPECT_EQ(fetched(other, digests), texts);
  EXPECT_TRUE(other.blobs->gather({}, soon()));
}

INSTANTIATE_TEST_SUITE_P(Over, BlobsContract, shared_clusters(), name_of_kind);

}  // namespace
}  // namespace inductorfs::remote
