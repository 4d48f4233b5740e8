// SPDX-License-Identifier: Apache-2.0
// Histories that only a real server's keys can have: trimmed, lost, restored, damaged.
#include <gtest/gtest.h>

#include "redis_fixture.h"
#include "remote/operations/redis_operations.h"

namespace inductorfs::remote {
namespace {

using RedisChanges = RedisFixture;

TEST_F(RedisChanges, ATrimmedLogLeadsToASnapshot) {
  for (int i = 0; i < 50; ++i) publish({entry("p" + std::to_string(i), "x")});
  Follower early(remote, scope);
  early.catch_up();
  const int before = early.resets;
  ASSERT_EQ(before, 1) << "a new reader";
  for (int i = 0; i < 10; ++i) publish({entry("q" + std::to_string(i), "x")});
  run({"XTRIM", keys.log, "MAXLEN", "3"});
  Follower late(remote, scope);
  early.catch_up();
  late.catch_up();
  EXPECT_EQ(early.resets, before + 1);
  EXPECT_EQ(early.entries.size(), 60U);
  EXPECT_EQ(early.entries, late.entries);
  EXPECT_EQ(early.position, late.position);
}

TEST_F(RedisChanges, ALongTailIsReadInStepsWithoutASnapshot) {
  publish({entry("p", "x")});
  Follower follower(remote, scope);
  follower.catch_up();
  const int before = follower.resets;
  for (int i = 0; i < 100; ++i) publish({entry("q" + std::to_string(i), "x")});
  follower.catch_up();
  EXPECT_EQ(follower.resets, before);
  EXPECT_EQ(follower.entries.size(), 101U);
  EXPECT_EQ(follower.position.generation, 101U);
}

TEST_F(RedisChanges, ASnapshotOfManyPagesIsWhole) {
  for (int g = 0; g < 4; ++g) {
    std::vector<codec::Entry> entries;
    for (int i = 0; i < 1500; ++i) entries.push_back(entry("d" + std::to_string(g) + "/" + std::to_string(i), "x"));
    publish(std::move(entries));
  }
  run({"DEL", keys.log});
  Follower follower(remote, scope);
  follower.catch_up();
  EXPECT_EQ(follower.entries.size(), 6000U);
  EXPECT_EQ(follower.position.generation, 4U);
}

// A failover to a replica that had not yet got the last publishes: the same generations come again with other content.
TEST_F(RedisChanges, ALostTailIsNoticedAlthoughTheGenerationIsTheSame) {
  publish({entry("kept", "x")});
  const auto meta = run({"HMGET", keys.meta, "gen", "nonce"});
  publish({entry("ghost", "x")});
  Follower follower(remote, scope);
  follower.catch_up();
  ASSERT_TRUE(follower.has("ghost"));
  run({"HSET", keys.meta, "gen", meta.items[0].text, "nonce", meta.items[1].text});
  run({"HDEL", keys.index, "ghost"});
  run({"XDEL", keys.log, "2-0"});
  run({"XSETID", keys.log, "1-0"});
  publish({entry("real", "x")});
  ASSERT_EQ(run({"HGET", keys.meta, "gen"}).text, "2");
  EXPECT_TRUE(remote.index->wait_for_changes({{scope, follower.position}}, Milliseconds(60000), [] { return false; }));
  follower.catch_up();
  EXPECT_FALSE(follower.has("ghost"));
  EXPECT_TRUE(follower.has("real"));
  EXPECT_TRUE(follower.has("kept"));
}

TEST_F(RedisChanges, AServerThatLostEverythingEmptiesItsFollowers) {
  publish({entry("a", "x")});
  Follower follower(remote, scope);
  follower.catch_up();
  run({"FLUSHALL"});
  follower.catch_up();
  EXPECT_TRUE(follower.entries.empty());
  EXPECT_EQ(follower.position, Position{});
  publish({entry("b", "x")});
  follower.catch_up();
  EXPECT_TRUE(follower.has("b"));
}

TEST_F(RedisChanges, TheLogTellsTheHeadWhenMetaIsLost) {
  publish({entry("a", "x")});
  publish({entry("b", "x")});
  Follower follower(remote, scope);
  follower.catch_up();
  const Position head = follower.position;
  const int resets = follower.resets;
  run({"DEL", keys.meta});
  follower.catch_up();
  EXPECT_EQ(follower.entries.size(), 2U);
  Follower fresh(remote, scope);
  fresh.catch_up();
  EXPECT_EQ(fresh.entries.size(), 2U);
  EXPECT_EQ(fresh.position, head);

  publish({entry("c", "x")});
  EXPECT_EQ(run({"XLEN", keys.log}).integer, 3) << "the history goes on";
  EXPECT_EQ(run({"HGET", keys.meta, "gen"}).text, "3");
  follower.catch_up();
  EXPECT_EQ(follower.entries.size(), 3U);
  EXPECT_EQ(follower.resets, resets) << "nobody reads the index anew";
  EXPECT_EQ(follower.position, (Position{3, run({"HGET", keys.meta, "nonce"}).text}));
}

/// A flipped bit, as of a memory without ECC: neither this scope nor one contest may stand for good.
TEST_F(RedisChanges, TheLogTellsTheHeadWhenTheGenerationIsDamaged) {
  publish({entry("a", "x")});
  publish({entry("b", "x")});
  Follower follower(remote, scope);
  follower.catch_up();
  const Position head = follower.position;
  const int resets = follower.resets;
  uint64_t next = 3;
  for (const std::string damaged : {"r", "-1", "0x3", "18446744073709551615", ""}) {
    run({"HSET", keys.meta, "gen", damaged});
    follower.catch_up();
    EXPECT_EQ(follower.entries.size(), next - 1) << damaged;
    Follower fresh(remote, scope);
    fresh.catch_up();
    EXPECT_EQ(fresh.entries.size(), next - 1) << damaged;
    publish({entry("more" + damaged, "x")});
    EXPECT_EQ(run({"HGET", keys.meta, "gen"}).text, std::to_string(next)) << "the history goes on";
    follower.catch_up();
    EXPECT_EQ(follower.entries.size(), next) << damaged;
    ++next;
  }
  EXPECT_EQ(follower.resets, resets) << "nobody reads the index anew";
  EXPECT_EQ(follower.position.generation, head.generation + 5);
}

TEST_F(RedisChanges, ADamagedCountRefusesNobody) {
  PublishGroup group = group_of(scope, {entry("k/a", "x")});
  group.contest = PublishGroup::Contest{"k", 1};
  ASSERT_EQ(*remote.index->publish(group, source, soon()), PublishOutcome::kPublished);
  for (const char* damaged : {"q", "-7", ""}) {
    run({"HSET", keys.counts, "k", damaged});
    const codec::Entry lost = *codec::decode_entry("k/a", run({"HGET", keys.index, "k/a"}).text);
    const auto reported = remote.index->report_lost(scope, "k/a", lost.digest, soon());
    ASSERT_TRUE(reported) << reported.error().to_string();
    run({"HSET", keys.counts, "k", damaged});
    const auto outcome = remote.index->publish(group, source, soon());
    ASSERT_TRUE(outcome) << outcome.error().to_string();
    EXPECT_EQ(*outcome, PublishOutcome::kPublished) << damaged;
    EXPECT_EQ(run({"HGET", keys.counts, "k"}).text, "1");
  }
}

TEST_F(RedisChanges, RecordsOfANewerReleaseAreSkippedAndReadTheIndexAnewOnce) {
  publish({entry("old", "x")});
  Follower follower(remote, scope);
  follower.catch_up();
  const uint64_t resyncs = count("remote.resyncs");
  constexpr int kRecords = 20;
  for (int i = 0; i < kRecords; ++i) {
    const auto head = run({"HMGET", keys.meta, "gen", "nonce"});
    const std::string generation = std::to_string(std::stoull(head.items[0].text) + 1);
    const std::string nonce = "of-a-newer-release-" + std::to_string(i);
    run({"XADD", keys.log, generation + "-0", "p", head.items[1].text, "n", nonce, "r", "\x09 what only it can read"});
    run({"HSET", keys.meta, "gen", generation, "nonce", nonce});
    const std::string ours = "ours" + std::to_string(i);
    publish({entry(ours, "x")});
    follower.catch_up();
    EXPECT_TRUE(follower.has(ours));
  }
  EXPECT_TRUE(follower.has("old"));
  EXPECT_EQ(follower.position.generation, 1U + 2 * kRecords);
  EXPECT_EQ(count("remote.skipped_records"), static_cast<uint64_t>(kRecords));
  EXPECT_EQ(count("remote.resyncs"), resyncs + 1);
}

TEST_F(RedisChanges, AnEntryThatOneReadingOfTheIndexCouldNotReadIsReadOnceMore) {
  publish({entry("sound", "x"), entry("flipped", "y")});
  const std::string sound = run({"HGET", keys.index, "flipped"}).text;
  std::string flipped = sound;
  flipped[0] = 3;  // the version: nothing that this reader could report
  run({"HSET", keys.index, "flipped", flipped});
  run({"DEL", keys.log});
  Follower follower(remote, scope);
  const auto first = remote.index->read_changes(scope, {}, soon());
  ASSERT_TRUE(first && first->reset && first->set.size() == 1U);
  follower.position = first->position;
  run({"HSET", keys.index, "flipped", sound});  // the server has had it so all along, and tells nobody
  follower.catch_up();
  EXPECT_TRUE(follower.has("flipped") && follower.has("sound"));
}

TEST_F(RedisChanges, ANewReaderReadsTheIndexAtOnceWhereTheLogIsLong) {
  for (size_t i = 0; i <= kRecordsPerRead; ++i) publish({entry("f" + std::to_string(i), "x")});
  const auto whole = remote.index->read_changes(scope, {}, soon());
  ASSERT_TRUE(whole);
  EXPECT_TRUE(whole->reset);
  EXPECT_TRUE(whole->at_head);
  EXPECT_EQ(whole->set.size(), kRecordsPerRead + 1);
  // Who has begun goes on with the log.
  const Position before = whole->position;
  for (size_t i = 0; i <= kRecordsPerRead; ++i) publish({entry("g" + std::to_string(i), "x")});
  const auto next = remote.index->read_changes(scope, before, soon());
  ASSERT_TRUE(next);
  EXPECT_FALSE(next->reset);
  EXPECT_FALSE(next->at_head);
  EXPECT_EQ(next->set.size(), kRecordsPerRead);
}

TEST_F(RedisChanges, AReaderThatMissedSomethingBeforeMetaWasLostCatchesUp) {
  publish({entry("a", "x")});
  Follower follower(remote, scope);
  follower.catch_up();
  publish({entry("b", "x")});
  publish({entry("c", "x")});
  run({"DEL", keys.meta});
  follower.catch_up();
  EXPECT_EQ(follower.entries.size(), 3U);
  publish({entry("d", "x")});
  publish({entry("e", "x")});
  run({"XTRIM", keys.log, "MAXLEN", "1"});
  run({"DEL", keys.meta});
  follower.catch_up();
  EXPECT_EQ(follower.entries.size(), 5U);
}

TEST_F(RedisChanges, AnIndexAloneIsReadWholeAndPublishingGoesOn) {
  publish({entry("a", "x")});
  publish({entry("b", "x")});
  Follower follower(remote, scope);
  follower.catch_up();
  Follower away(remote, scope);
  away.catch_up();
  for (const char* added : {"c", "d"}) {
    const size_t known = follower.entries.size();
    run({"DEL", keys.meta, keys.log});
    follower.catch_up();
    EXPECT_EQ(follower.entries.size(), known);
    Follower fresh(remote, scope);
    fresh.catch_up();
    EXPECT_EQ(fresh.entries.size(), known);
    EXPECT_EQ(fresh.position, follower.position);
    publish({entry(added, "x")});
    EXPECT_EQ(run({"XLEN", keys.log}).integer, 1);
    for (Follower* each : {&follower, &fresh, &away}) {
      each->catch_up();
      EXPECT_EQ(each->entries.size(), known + 1);
    }
    Follower late(remote, scope);
    late.catch_up();
    EXPECT_EQ(late.entries.size(), known + 1) << "the first record is not the whole history";
  }
}

TEST_F(RedisChanges, AnEmptyScopeIsReadByAUserThatMayNotAskForTheEndOfTheLog) {
  run({"ACL", "SETUSER", "default", "-xrevrange"});
  Follower follower(remote, scope);
  follower.catch_up();
  EXPECT_EQ(follower.position, Position{});
  publish({entry("a", "x")});
  follower.catch_up();
  run({"DEL", keys.meta});
  const auto delta = remote.index->read_changes(scope, follower.position, soon());
  ASSERT_FALSE(delta) << "not a scope that is empty";
  EXPECT_EQ(delta.error().code(), ErrorCode::kNotPermitted);
  publish({entry("b", "x")});
  follower.catch_up();
  EXPECT_EQ(follower.entries.size(), 2U);
}

TEST_F(RedisChanges, ALogWithoutMetaAndIndexIsNoHistory) {
  publish({entry("a", "x")});
  Follower follower(remote, scope);
  follower.catch_up();
  run({"DEL", keys.meta, keys.index});
  follower.catch_up();
  EXPECT_TRUE(follower.entries.empty());
  EXPECT_EQ(follower.position, Position{});
}

// An older data set that comes back without its meta: its log tells that it is another history.
TEST_F(RedisChanges, ALostTailIsNoticedAlthoughMetaIsLostToo) {
  publish({entry("kept", "x")});
  publish({entry("ghost", "x")});
  Follower follower(remote, scope);
  follower.catch_up();
  ASSERT_TRUE(follower.has("ghost"));
  run({"HDEL", keys.index, "ghost"});
  run({"XDEL", keys.log, "2-0"});
  run({"XSETID", keys.log, "1-0"});
  run({"DEL", keys.meta});
  follower.catch_up();
  EXPECT_FALSE(follower.has("ghost"));
  publish({entry("real", "x")});
  ASSERT_EQ(run({"HGET", keys.meta, "gen"}).text, "2");
  follower.catch_up();
  EXPECT_TRUE(follower.has("real"));
  EXPECT_TRUE(follower.has("kept"));
}

TEST_F(RedisChanges, EntriesAndRecordsThatCannotBeReadAreSkippedAndCounted) {
  publish({entry("good", "x")});
  Follower follower(remote, scope);
  follower.catch_up();
  run({"HSET", keys.index, "bad", "no entry"});
  run({"HSET", keys.index, "../evil", run({"HGET", keys.index, "good"}).text});
  run({"XADD", keys.log, "2-0", "p", follower.position.nonce, "n", "n2", "r", "no record"});
  run({"HSET", keys.meta, "gen", "2", "nonce", "n2"});
  follower.catch_up();
  EXPECT_EQ(follower.position, (Position{2, "n2"}));
  EXPECT_EQ(follower.entries.size(), 1U);
  EXPECT_GE(count("remote.bad_entries"), 2U);
}

TEST_F(RedisChanges, ADamagedEntryIsRemovedAndGivesItsContestBack) {
  PublishGroup group = group_of(scope, {entry("damaged", "x"), entry("sound", "y")});
  group.contest = PublishGroup::Contest{"k", 0};
  ASSERT_EQ(*remote.index->publish(group, source, soon()), PublishOutcome::kPublished);
  std::string value = run({"HGET", keys.index, "damaged"}).text;
  value[45] ^= 1;  // of the time
  run({"HSET", keys.index, "damaged", value});
  value[0] = 3;
  run({"HSET", keys.index, "newer", value});
  run({"DEL", keys.log});
  Follower reader(remote, scope);
  const auto first = remote.index->read_changes(scope, {}, soon());
  ASSERT_TRUE(first);
  EXPECT_EQ(run({"HEXISTS", keys.index, "damaged"}).integer, 1) << "one reading may be wrong";
  reader.position = first->position;
  reader.catch_up();
  EXPECT_TRUE(reader.has("sound"));
  EXPECT_FALSE(reader.has("damaged") || reader.has("newer"));
  EXPECT_EQ(run({"HEXISTS", keys.index, "damaged"}).integer, 0);
  EXPECT_EQ(run({"HEXISTS", keys.index, "newer"}).integer, 1) << "another version's is not ours to remove";
  group.entries[0].mtime_ns += 1;
  EXPECT_EQ(*remote.index->publish(group, source, soon()), PublishOutcome::kPublished);
}

TEST_F(RedisChanges, AKeyOfAnotherTypeIsAnErrorNotACrash) {
  run({"SET", keys.meta, "text"});
  const auto delta = remote.index->read_changes(scope, {}, soon());
  ASSERT_FALSE(delta);
  EXPECT_EQ(delta.error().code(), ErrorCode::kInternal);
}

TEST_F(RedisChanges, AnIndexOverTheLimitIsNamedAndAFullOneTakesNothingNew) {
  options.index_limit = 3;
  reopen();
  publish({entry("a", "x"), entry("b", "x"), entry("c", "x")});
  publish({entry("a", "changed")});  // nothing new
  const auto full = remote.index->publish(group_of(scope, {entry("d", "x")}), source, soon());
  ASSERT_TRUE(full) << full.error().to_string();
  EXPECT_EQ(*full, PublishOutcome::kFull);
  EXPECT_EQ(run({"HEXISTS", keys.index, "d"}).integer, 0);
  options.index_limit = 2;
  reopen();
  const auto delta = remote.index->read_changes(scope, {}, soon());
  ASSERT_FALSE(delta);
  EXPECT_EQ(delta.error().code(), ErrorCode::kTooLarge);
  EXPECT_NE(delta.error().what().find("index_limit"), std::string::npos);
}

TEST_F(RedisChanges, TheLogIsTrimmedToItsLength) {
  options.log_length = 10;
  reopen();
  for (int i = 0; i < 300; ++i) publish({entry("a", std::to_string(i))});
  EXPECT_LT(run({"XLEN", keys.log}).integer, 150) << "MAXLEN ~ trims whole nodes of 100";
}

}  // namespace
}  // namespace inductorfs::remote
