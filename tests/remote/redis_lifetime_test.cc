// SPDX-License-Identifier: Apache-2.0
// How long things live on a real server, who renews them, and what an eviction may take.
#include <gtest/gtest.h>

#include "redis_fixture.h"
#include "remote/operations/lifetime.h"

namespace inductorfs::remote {
namespace {

class RedisLifetime : public RedisFixture {
 protected:
  PublishGroup contested(const std::string& path, const std::string& text) {
    PublishGroup group = group_of(scope, {entry(path, text)});
    group.contest = PublishGroup::Contest{"k", 0};
    return group;
  }
  PublishOutcome outcome_of(const PublishGroup& group) {
    const auto outcome = remote.index->publish(group, source, soon());
    EXPECT_TRUE(outcome) << outcome.error().to_string();
    return outcome.value_or(PublishOutcome::kConflict);
  }
  std::vector<std::string> all_keys() const { return {keys.meta, keys.index, keys.counts, keys.owners, keys.log}; }
};

TEST_F(RedisLifetime, EveryKeyOfAScopeEndsLaterThanItsBlobs) {
  const auto group = contested("k/1", "1");
  ASSERT_EQ(outcome_of(group), PublishOutcome::kPublished);
  const int64_t blob = run({"PTTL", key_of(group.entries[0].digest)}).integer;
  EXPECT_GT(blob, 0);
  for (const std::string& key : all_keys()) EXPECT_GT(run({"PTTL", key}).integer, blob * 3 / 2) << key;
}

TEST_F(RedisLifetime, AFollowerRenewsItsScope) {
  ASSERT_EQ(outcome_of(contested("k/1", "1")), PublishOutcome::kPublished);
  // An old release gave them none; another scope's followers may have been away.
  run({"PERSIST", keys.index});
  for (const std::string& key : {keys.meta, keys.counts, keys.owners, keys.log}) run({"PEXPIRE", key, "60000"});
  reopen();
  ASSERT_TRUE(remote.index->wait_for_changes({{scope, {}}}, Milliseconds(100), [] { return false; }));
  const int64_t least = Lifetime::of_scopes(options).renew_below;
  for (const std::string& key : all_keys()) EXPECT_GT(run({"PTTL", key}).integer, least) << key;
}

TEST_F(RedisLifetime, AFollowerOfVeryManyScopesKeepsEachOfThem) {
  constexpr size_t kScopes = 150;
  std::vector<std::pair<ScopeId, Position>> scopes;
  for (size_t i = 0; i < kScopes; ++i) {
    scopes.emplace_back("5c0be" + std::to_string(i), Position{});
    ASSERT_EQ(outcome_of(group_of(scopes.back().first, {entry("a", "x")})), PublishOutcome::kPublished);
    ASSERT_EQ(run({"PEXPIRE", ScopeKeys(options.prefix, scopes.back().first).index, "60000"}).integer, 1);
  }
  reopen();
  ASSERT_TRUE(remote.index->wait_for_changes(scopes, Milliseconds(100), [] { return false; }));
  const int64_t least = Lifetime::of_scopes(options).renew_below;
  for (const auto& [id, position] : scopes) {
    EXPECT_GT(run({"PTTL", ScopeKeys(options.prefix, id).index}).integer, least) << id;
  }
}

TEST_F(RedisLifetime, AFollowerAsksSeldom) {
  ScopeKeeper keeper(Milliseconds(24 * 3'600'000));
  const SteadyTime start{};
  auto due = keeper.due({"aa", "bb"}, start);
  ASSERT_EQ(due.size(), 2U);
  EXPECT_TRUE(due[0].look && due[1].look);
  EXPECT_TRUE(keeper.due({"aa", "bb"}, start + ScopeKeeper::kTouchInterval / 2).empty());
  due = keeper.due({"aa", "bb"}, start + ScopeKeeper::kTouchInterval);
  ASSERT_EQ(due.size(), 2U);
  EXPECT_FALSE(due[0].look || due[1].look);
  EXPECT_TRUE(keeper.due({"aa"}, start + std::chrono::hours(24)).front().look);
}

TEST_F(RedisLifetime, WhatStatementsCoverLivesAsLongAsItsScopeAndEndsWithThem) {
  const std::string one(kCoverKeySize, '1');
  const std::string two(kCoverKeySize, '2');
  const std::vector<std::string> both{one, two};
  ASSERT_TRUE(remote.statements->put_statement(scope, "ends", both, Milliseconds(60'000), soon()));
  ASSERT_TRUE(remote.statements->put_statement(scope, "stays", {{two}}, Milliseconds(60'000), soon()));
  EXPECT_LE(run({"PTTL", keys.statement(statement_id("ends"))}).integer, 60'000);
  const int64_t least = Lifetime::of_scopes(options).renew_below;
  EXPECT_GT(run({"PTTL", keys.covered}).integer, least);
  run({"PEXPIRE", keys.covered, "60000"});
  reopen();
  ASSERT_TRUE(remote.index->wait_for_changes({{scope, {}}}, Milliseconds(100), [] { return false; }));
  EXPECT_GT(run({"PTTL", keys.covered}).integer, least) << "a follower renews it";
  publish({entry("a", "x")});
  EXPECT_EQ(remote.index->sweep(scope, true, soon())->uncovered, 0U);
  ASSERT_EQ(run({"DEL", keys.statement(statement_id("ends"))}).integer, 1);
  EXPECT_EQ(remote.index->sweep(scope, true, soon())->uncovered, 1U);
  EXPECT_EQ(run({"HKEYS", keys.covered}).items.size(), 1U);
  EXPECT_EQ(remote.statements->find_statements(scope, both, soon()).value(),
            (std::vector<std::string>{"", statement_id("stays")}));
}

TEST_F(RedisLifetime, WhatAnybodyHasPutInTheirPlaceIsNoStatement) {
  const std::string one(kCoverKeySize, '1');
  ASSERT_TRUE(remote.statements->put_statement(scope, "text", {{one}}, Milliseconds(60'000), soon()));
  const std::string id = statement_id("text");
  run({"SET", keys.statement(id), "other"});
  const auto read = [&] { return remote.statements->read_statements(scope, {{id}}, soon()).value().at(0); };
  EXPECT_EQ(read(), "");
  run({"SET", keys.statement(id), std::string(3 * kStatementLimit, 's')});
  EXPECT_EQ(read(), "");
  run({"DEL", keys.statement(id)});
  run({"LPUSH", keys.statement(id), "text"});
  EXPECT_EQ(read(), "");
  run({"HSET", keys.covered, one, std::string(1000, 'i')});
  EXPECT_EQ(remote.statements->find_statements(scope, {{one}}, soon()).value().at(0), "");
  run({"DEL", keys.covered});
  run({"SET", keys.covered, "text"});
  EXPECT_FALSE(remote.statements->find_statements(scope, {{one}}, soon()));
  publish({entry("a", "x")});
  EXPECT_TRUE(remote.index->sweep(scope, true, soon()).value().ours);
  EXPECT_FALSE(remote.index->sweep(scope, false, soon()).value().ours) << "it rests all the same";
}

TEST_F(RedisLifetime, UseRenewsABlobOfWhoseTimeAPartIsOver) {
  const auto used = entry("a", test_bytes(kPieceBytes + 1, 1));
  const auto unused = entry("b", "unused");
  publish({used, unused});
  const codec::Digest absent = codec::digest_of("never published");
  for (const uint32_t piece : {0U, 1U}) run({"EXPIRE", key_of(used.digest, piece), "1000"});
  run({"EXPIRE", key_of(unused.digest), "1000"});
  const std::vector<codec::Digest> digests = {used.digest, absent};
  ASSERT_TRUE(remote.blobs->renew(digests, soon()));
  for (const uint32_t piece : {0U, 1U}) EXPECT_GT(run({"TTL", key_of(used.digest, piece)}).integer, 1000) << piece;
  EXPECT_LE(run({"TTL", key_of(unused.digest)}).integer, 1000);
  EXPECT_EQ(run({"EXISTS", key_of(absent)}).integer, 0);
  const std::string before = run({"INFO", "commandstats"}).text;
  ASSERT_TRUE(remote.blobs->renew(digests, soon()));
  const auto calls = [](const std::string& info) { return info.substr(info.find("cmdstat_pexpire:"), 40); };
  EXPECT_EQ(calls(run({"INFO", "commandstats"}).text).substr(0, 30), calls(before).substr(0, 30))
      << "what is fresh costs no write";
}

TEST_F(RedisLifetime, CountsThatLostTheirOwnersOrTheirIndexRefuseNobody) {
  for (const std::string& evicted : {keys.owners, keys.index}) {
    run({"FLUSHALL"});
    ASSERT_EQ(outcome_of(contested("k/1", "1")), PublishOutcome::kPublished);
    ASSERT_EQ(outcome_of(contested("k/2", "2")), PublishOutcome::kSuperseded);
    run({"DEL", evicted});
    EXPECT_EQ(outcome_of(contested("k/2", "2")), PublishOutcome::kPublished) << evicted;
    EXPECT_EQ(outcome_of(contested("k/3", "3")), PublishOutcome::kSuperseded) << evicted;
  }
}

TEST_F(RedisLifetime, AFollowerNoticesThatTheIndexWasEvicted) {
  publish({entry("a", "1")});
  Follower follower(remote, scope);
  follower.catch_up();
  run({"DEL", keys.index});
  publish({entry("b", "2")});
  follower.catch_up();
  EXPECT_FALSE(follower.has("a"));
  EXPECT_TRUE(follower.has("b"));
}

TEST_F(RedisLifetime, AServerThatEvictsWhatIsNearestToItsEndTakesNoIndexThatIsFollowed) {
  // As many samples as there are keys: of the few keys here the usual five are all of an index now and then.
  start({.arguments = {"--maxmemory", "20mb", "--maxmemory-policy", "volatile-ttl", "--maxmemory-samples", "64"}});
  std::vector<codec::Entry> entries;
  for (int i = 0; i < 500; ++i) entries.push_back(entry("small/" + std::to_string(i), "bytes " + std::to_string(i)));
  PublishGroup group = group_of(scope, std::move(entries));
  group.contest = PublishGroup::Contest{"k", 0};
  ASSERT_EQ(outcome_of(group), PublishOutcome::kPublished);
  // Three times the memory, all of it younger than the index.
  for (uint32_t i = 0; i < 60; ++i) {
    PublishGroup other = group_of("0ther", {entry("large" + std::to_string(i), test_bytes(1'000'000, i))});
    ASSERT_EQ(outcome_of(other), PublishOutcome::kPublished);
  }
  const std::string stats = run({"INFO", "stats"}).text;
  EXPECT_EQ(stats.find("evicted_keys:0\r"), std::string::npos) << "the server had to evict";
  for (const std::string& key : all_keys()) EXPECT_EQ(run({"EXISTS", key}).integer, 1) << key;
  EXPECT_EQ(run({"HLEN", keys.index}).integer, 500);
  EXPECT_EQ(run({"HLEN", ScopeKeys("ifs1", "0ther").index}).integer, 60);
}

TEST_F(RedisLifetime, OneMountSweepsAndTheOthersLeaveItToIt) {
  const auto gone = entry("gone", "gone");
  publish({entry("kept", "kept"), gone});
  run({"DEL", key_of(gone.digest)});
  run({"SET", keys.sweeper, "another mount's token", "PX", "60000"});
  EXPECT_FALSE(remote.index->sweep(scope, true, soon())->ours);
  run({"DEL", keys.sweeper});
  EXPECT_EQ(remote.index->sweep(scope, false, soon())->gone, 1U);
  EXPECT_FALSE(remote.index->sweep(scope, false, soon())->ours) << "it was done a moment ago";
  EXPECT_GT(run({"TTL", keys.sweeper}).integer, 3600);
  EXPECT_TRUE(remote.index->sweep(scope, true, soon())->ours) << "somebody wants room";
  EXPECT_EQ(run({"HLEN", keys.index}).integer, 1);
}

TEST_F(RedisLifetime, ASweepLeavesTheEntriesOfANewerRelease) {
  const auto gone = entry("gone", "gone");
  publish({entry("kept", "kept"), gone});
  run({"DEL", key_of(gone.digest)});
  put_newer("newer", "newer");
  const auto report = remote.index->sweep(scope, true, soon());
  ASSERT_TRUE(report) << report.error().to_string();
  EXPECT_EQ(run({"HEXISTS", keys.index, "newer"}).integer, 1);
  EXPECT_EQ(run({"HEXISTS", keys.index, "gone"}).integer, 0);
  EXPECT_EQ(report->gone, 1U);
  EXPECT_EQ(report->unknown, 1U);
}

TEST_F(RedisLifetime, AFullScopeLosesNoEntryOfANewerReleaseWithItsGroup) {
  options.index_limit = 40;
  reopen();
  for (int i = 0; i < 38; ++i) publish({entry("p" + std::to_string(i), "text " + std::to_string(i))});
  PublishGroup set = group_of(scope, {entry("set/a", "a"), entry("set/b", "b")});
  set.contest = PublishGroup::Contest{"set", 0};
  ASSERT_EQ(outcome_of(set), PublishOutcome::kPublished);
  put_newer("set/b", "b");
  run({"EXPIRE", key_of(codec::digest_of(std::string("a"))), "1000"});
  const auto report = remote.index->sweep(scope, true, soon());
  ASSERT_TRUE(report) << report.error().to_string();
  EXPECT_EQ(report->gone, 0U);
  EXPECT_EQ(run({"HEXISTS", keys.index, "set/a"}).integer, 0);
  EXPECT_EQ(run({"HEXISTS", keys.index, "set/b"}).integer, 1);
}

TEST_F(RedisLifetime, AFullScopeTakesGroupsAgainAfterASweep) {
  options.index_limit = 40;
  reopen();
  for (int i = 0; i < 38; ++i) publish({entry("p" + std::to_string(i), "text " + std::to_string(i))});
  PublishGroup set = group_of(scope, {entry("set/a", "a"), entry("set/b", "b")});
  set.contest = PublishGroup::Contest{"set", 0};
  ASSERT_EQ(outcome_of(set), PublishOutcome::kPublished);
  const auto late = group_of(scope, {entry("late", "late")});
  EXPECT_EQ(outcome_of(late), PublishOutcome::kFull);
  // What was used least recently has the least left: two of the files, and one of the set's.
  for (const char* text : {"text 3", "text 7", "a"}) {
    run({"EXPIRE", key_of(codec::digest_of(std::string(text))), "1000"});
  }
  const auto report = remote.index->sweep(scope, true, soon());
  ASSERT_TRUE(report) << report.error().to_string();
  EXPECT_GE(report->unused, 4U);
  EXPECT_EQ(outcome_of(late), PublishOutcome::kPublished);
  for (const char* path : {"p3", "p7", "set/a", "set/b"}) {
    EXPECT_EQ(run({"HEXISTS", keys.index, path}).integer, 0) << path;
  }
  EXPECT_GE(run({"HLEN", keys.index}).integer, 35);
  EXPECT_EQ(outcome_of(set), PublishOutcome::kPublished) << "its contest is open again";
}

}  // namespace
}  // namespace inductorfs::remote
