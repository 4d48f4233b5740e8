// SPDX-License-Identifier: Apache-2.0
// Blobs as the server holds them: evicted in part, damaged, renewed, refused.
#include <gtest/gtest.h>

#include "redis_fixture.h"

namespace inductorfs::remote {
namespace {

using RedisBlobs = RedisFixture;

TEST_F(RedisBlobs, ABlobThatLacksAnyPieceIsNotFoundAndIsSentAgain) {
  const auto large = entry("large", test_bytes(3 * kPieceBytes + 100, 1));
  publish({large});
  for (const uint32_t piece : {0U, 1U, 3U}) {
    run({"DEL", key_of(large.digest, piece)});
    EXPECT_EQ(fetch_error(large.digest, soon()), ErrorCode::kNotFound) << piece;
    publish({entry("again" + std::to_string(piece), source.frame(large.digest))});
    EXPECT_EQ(fetch_error(large.digest, soon()), std::nullopt) << piece;
  }
}

TEST_F(RedisBlobs, DamagedPiecesAreCorruptAndHurtNoOtherBlob) {
  const auto large = entry("large", test_bytes(2 * kPieceBytes, 1));
  const auto small = entry("small", "small");
  publish({large, small});
  const std::string first = run({"GET", key_of(large.digest)}).text;
  const auto fetch_both = [&] {
    FakeSink sink;
    const std::vector<codec::Digest> digests = {large.digest, small.digest};
    remote.blobs->fetch(digests, sink, soon());
    EXPECT_EQ(sink.error_of(small.digest), std::nullopt);
    return sink.error_of(large.digest);
  };
  run({"SET", key_of(large.digest), "IFSP"});
  EXPECT_EQ(fetch_both(), ErrorCode::kCorrupt);
  run({"SET", key_of(large.digest), first.substr(0, 100'000)});
  EXPECT_EQ(fetch_both(), ErrorCode::kCorrupt) << "cut behind what the first read sees";
  run({"SET", key_of(large.digest), PieceHead::of(kFrameSizeLimit).encode() + first.substr(kPieceHeadSize)});
  EXPECT_EQ(fetch_both(), ErrorCode::kNotFound) << "a head that promises a million pieces ends at the first missing";
  run({"SET", key_of(large.digest), first});
  EXPECT_EQ(fetch_both(), std::nullopt);
  run({"SET", key_of(large.digest, 1), "short"});
  EXPECT_EQ(fetch_both(), ErrorCode::kCorrupt);
  run({"DEL", key_of(large.digest, 1)});
  run({"LPUSH", key_of(large.digest, 1), "a list"});
  EXPECT_EQ(fetch_both(), ErrorCode::kCorrupt);
}

TEST_F(RedisBlobs, PiecesOfANewerReleaseAreNotDamaged) {
  const auto small = entry("small", "small");
  publish({small});
  std::string value = run({"GET", key_of(small.digest)}).text;
  value[4] = 2;
  run({"SET", key_of(small.digest), value});
  EXPECT_EQ(fetch_error(small.digest, soon()), ErrorCode::kNotSupported);
}

TEST_F(RedisBlobs, PiecesOfANewerReleaseAreNeitherSentAgainNorSweptNorRenewed) {
  const auto large = entry("large", test_bytes(kPieceBytes + 1, 1));
  publish({large});
  std::string value = run({"GET", key_of(large.digest)}).text;
  value[4] = 2;
  run({"SET", key_of(large.digest), value, "EX", "10"});
  run({"DEL", key_of(large.digest, 1)});  // the newer release may call it by another name
  const uint64_t sent = count("remote.publish_blobs");

  const auto swept = remote.index->sweep(scope, true, soon());
  publish({entry("other", source.frame(large.digest))});

  EXPECT_TRUE(run({"GET", key_of(large.digest)}).text == value);
  EXPECT_EQ(count("remote.publish_blobs"), sent);
  EXPECT_LE(run({"TTL", key_of(large.digest)}).integer, 10);
  ASSERT_TRUE(swept) << swept.error().to_string();
  EXPECT_TRUE(swept->ours);
  EXPECT_EQ(swept->gone, 0U);
  EXPECT_EQ(run({"HEXISTS", keys.index, "large"}).integer, 1);
}

TEST_F(RedisBlobs, LiveForTheirLifetimeAndAreRenewedByTheNextPublish) {
  options.blob_lifetime = std::chrono::seconds(1000);
  reopen();
  const auto large = entry("a", test_bytes(kPieceBytes + 1, 1));
  publish({large});
  for (const uint32_t piece : {0U, 1U}) {
    const std::string key = key_of(large.digest, piece);
    EXPECT_GT(run({"TTL", key}).integer, 900);
    run({"EXPIRE", key, "10"});
  }
  publish({entry("b", source.frame(large.digest))});
  EXPECT_GT(run({"TTL", key_of(large.digest, 0)}).integer, 900);
  EXPECT_GT(run({"TTL", key_of(large.digest, 1)}).integer, 900);
}

TEST_F(RedisBlobs, NoValueIsLongerThanItsLimit) {
  const auto large = entry("a", test_bytes(5 * kPieceBytes, 1));
  publish({large});
  for (uint32_t piece = 0; piece < 5; ++piece) {
    EXPECT_LE(run({"STRLEN", key_of(large.digest, piece)}).integer, static_cast<int64_t>(kValueLimit));
  }
}

TEST_F(RedisBlobs, ALostContestSendsNoBlob) {
  PublishGroup first = group_of(scope, {entry("k/1", "1")});
  first.contest = PublishGroup::Contest{"k", 0};
  ASSERT_TRUE(remote.index->publish(first, source, soon()));
  const int reads = source.reads;
  PublishGroup second = group_of(scope, {entry("k/2", "2")});
  second.contest = first.contest;
  const auto outcome = remote.index->publish(second, source, soon());
  ASSERT_TRUE(outcome);
  EXPECT_EQ(*outcome, PublishOutcome::kSuperseded);
  EXPECT_EQ(source.reads, reads);
  EXPECT_EQ(run({"EXISTS", key_of(second.entries[0].digest)}).integer, 0);
}

TEST_F(RedisBlobs, WhatAnotherHostSendsIsNotSentUntilItsClaimIsOver) {
  const auto ours = entry("a", "bytes");
  run({"SET", keys.sending("a"), "another host/mount", "PX", "60000"});
  const auto publish_it = [&] { return remote.index->publish(group_of(scope, {ours}), source, soon()); };
  EXPECT_EQ(publish_it().value(), PublishOutcome::kClaimed);
  EXPECT_EQ(source.reads, 0);
  EXPECT_EQ(run({"EXISTS", keys.meta, keys.index, key_of(ours.digest)}).integer, 0);
  run({"PEXPIRE", keys.sending("a"), "1"});
  while (run({"EXISTS", keys.sending("a")}).integer == 1) {
  }
  EXPECT_EQ(publish_it().value(), PublishOutcome::kPublished);
  EXPECT_EQ(run({"EXISTS", keys.sending("a")}).integer, 0) << "the next one need not wait";
}

TEST_F(RedisBlobs, AHostFindsItsOwnClaimAgainAndAFailedOneIsLetGo) {
  const auto ours = entry("a", "bytes");
  const auto unsent = entry_of("b", codec::digest_of("the source has it not"));
  run({"SET", keys.sending("a"), ours.origin, "PX", "60000"});
  publish({ours});
  ASSERT_FALSE(remote.index->publish(group_of(scope, {unsent}), source, soon()));
  EXPECT_EQ(run({"EXISTS", keys.sending("b")}).integer, 0);
}

TEST_F(RedisBlobs, ContestsLeaveNothingBehindWhenTheirGroupIsLost) {
  PublishGroup group = group_of(scope, {entry("k/1", "1")});
  group.contest = PublishGroup::Contest{"k", 0};
  ASSERT_TRUE(remote.index->publish(group, source, soon()));
  EXPECT_EQ(run({"HGET", keys.counts, "k"}).text, "1");
  ASSERT_TRUE(remote.index->report_lost(scope, "k/1", group.entries[0].digest, soon()));
  EXPECT_EQ(run({"EXISTS", keys.counts, keys.owners, keys.index}).integer, 0);
}

TEST_F(RedisBlobs, AServerWithoutMemoryRefusesPublishesAtOnceAndStillAnswersReads) {
  const auto held = entry("held", test_bytes(1000, 1));
  publish({held});
  run({"CONFIG", "SET", "maxmemory", "1"});
  const auto refused = remote.index->publish(group_of(scope, {entry("new", "bytes")}), source, soon());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kUnavailable);
  EXPECT_NE(refused.error().what().find("OOM"), std::string::npos);
  EXPECT_EQ(fetch_error(held.digest, soon()), std::nullopt);
  const auto again = remote.index->publish(group_of(scope, {entry("new", "bytes")}), source, soon());
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code(), ErrorCode::kUnavailable);
  EXPECT_TRUE(again.error().what().starts_with(refused.error().what())) << "what the first was refused for";
  EXPECT_TRUE(again.error().what().ends_with("; it is asked again in a moment"))
      << "it must not have gone to the server";
  Follower follower(remote, scope);
  follower.catch_up();
  EXPECT_FALSE(follower.has("new"));
}

}  // namespace
}  // namespace inductorfs::remote
