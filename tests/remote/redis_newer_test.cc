// SPDX-License-Identifier: Apache-2.0
// Entries of a newer release: this one cannot read them, so it does not compare, replace or remove them.
#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "redis_fixture.h"
#include "remote/formats/scripts.h"

namespace inductorfs::remote {
namespace {

/// Does something in the middle of a publish, while its first blob is read. Needs external synchronisation.
class InterruptedSource final : public BlobSource {
 public:
  InterruptedSource(FakeSource& source, std::function<void()> interrupt)
      : source_(source), interrupt_(std::move(interrupt)) {}
  Result<void> read(const codec::Digest& digest, size_t piece,
                    const std::function<Result<void>(std::string_view)>& sink) override {
    if (interrupt_) std::exchange(interrupt_, {})();
    return source_.read(digest, piece, sink);
  }

 private:
  FakeSource& source_;
  std::function<void()> interrupt_;
};

class RedisNewer : public RedisFixture {
 protected:
  /// Every condition that a group of one entry can have.
  std::vector<std::pair<std::string, PublishGroup>> every_kind(const codec::Entry& entry) {
    std::vector<std::pair<std::string, PublishGroup>> kinds(5, {"plain", group_of(scope, {entry})});
    kinds[1].first = "first of path";
    kinds[1].second.first_of_path = true;
    kinds[2].first = "contest";
    kinds[2].second.contest = PublishGroup::Contest{"k", 0};
    kinds[3].first = "replaces its own digest";
    kinds[3].second.replaces = PublishGroup::Replaces{entry.digest};
    kinds[4].first = "replaces nothing";
    kinds[4].second.replaces = PublishGroup::Replaces{};
    return kinds;
  }
  std::string held(const std::string& path) { return run({"HGET", keys.index, path}).text; }
  int64_t records() { return run({"XLEN", keys.log}).integer; }
};

TEST_F(RedisNewer, NoPublishReplacesItOrSendsItsBytes) {
  const std::string newer = put_newer("a", "theirs");
  const auto ours = entry("a", "ours");
  uint64_t publishes = 0;
  for (const auto& [kind, group] : every_kind(ours)) {
    const auto outcome = remote.index->publish(group, source, soon());
    ASSERT_TRUE(outcome) << kind << ": " << outcome.error().to_string();
    EXPECT_EQ(*outcome, PublishOutcome::kNewer) << kind;
    EXPECT_EQ(held("a"), newer) << kind;
    EXPECT_EQ(count("remote.publish_newer"), ++publishes) << kind;
  }
  EXPECT_EQ(records(), 0);
  EXPECT_EQ(source.reads, 0);
  EXPECT_EQ(run({"EXISTS", keys.counts, keys.owners, key_of(ours.digest)}).integer, 0);
}

TEST_F(RedisNewer, WhatStandsWhereThisReleasePutsTheDigestIsNotCompared) {
  const auto ours = entry("a", "ours");
  const std::string newer = put_newer("a", "theirs", std::string(ours.digest.raw()));
  for (const bool sent : {false, true}) {
    if (sent) publish({entry("another path", "ours")});
    const int64_t before = records();
    for (const auto& [kind, group] : every_kind(ours)) {
      const auto outcome = remote.index->publish(group, source, soon());
      ASSERT_TRUE(outcome) << kind << ": " << outcome.error().to_string();
      EXPECT_EQ(*outcome, PublishOutcome::kNewer) << kind << (sent ? ", whose blob is there" : "");
      EXPECT_EQ(held("a"), newer) << kind;
    }
    EXPECT_EQ(records(), before);
  }
}

TEST_F(RedisNewer, AGroupStaysAwayWholeWhenOneOfItsPathsIsNewer) {
  const std::string newer = put_newer("set/b", "theirs");
  PublishGroup group = group_of(scope, {entry("set/a", "a"), entry("set/b", "b")});
  group.contest = PublishGroup::Contest{"set", 0};
  EXPECT_EQ(remote.index->publish(group, source, soon()).value(), PublishOutcome::kNewer);
  EXPECT_EQ(held("set/b"), newer);
  EXPECT_EQ(run({"HLEN", keys.index}).integer, 1);
  EXPECT_EQ(run({"EXISTS", keys.counts, keys.owners, keys.log}).integer, 0);
}

TEST_F(RedisNewer, OneThatComesWhileABlobIsSentStays) {
  int number = 0;
  for (const char* fixed : {"other bytes", "our digest"}) {
    const std::string text = "ours " + std::to_string(++number);
    const auto ours = entry("a", text);
    const auto bytes = fixed == std::string("our digest") ? std::string(ours.digest.raw()) : std::string(40, 'Z');
    for (auto& [kind, group] : every_kind(ours)) {
      run({"DEL", keys.index, keys.meta, keys.log, key_of(ours.digest)});
      if (kind == "replaces its own digest") publish({ours});
      run({"DEL", key_of(ours.digest)});
      const int64_t before = records();
      std::string newer;
      InterruptedSource interrupted(source, [&] { newer = put_newer("a", "theirs", bytes); });
      const auto outcome = remote.index->publish(group, interrupted, soon());
      ASSERT_TRUE(outcome) << kind << ": " << outcome.error().to_string();
      EXPECT_EQ(*outcome, PublishOutcome::kNewer) << kind << ", " << fixed;
      EXPECT_EQ(held("a"), newer) << kind << ", " << fixed;
      EXPECT_EQ(records(), before) << kind << ", " << fixed;
      EXPECT_EQ(run({"EXISTS", keys.counts, keys.owners}).integer, 0) << kind << ", " << fixed;
    }
  }
}

TEST_F(RedisNewer, NoReportOfALostBlobRemovesIt) {
  const auto lost = entry("a", "lost");
  const std::string newer = put_newer("a", "theirs", std::string(lost.digest.raw()));
  ASSERT_TRUE(remote.index->report_lost(scope, "a", lost.digest, soon()));
  EXPECT_EQ(held("a"), newer);
  EXPECT_EQ(count("remote.lost_removed"), 0U);
}

// The sweep read an entry of this release, and a newer one took its place before the sweep's last step.
TEST_F(RedisNewer, ASweepThatReadAnEarlierEntryLeavesIt) {
  const auto lost = entry("a", "lost");
  const std::string newer = put_newer("a", "theirs", std::string(lost.digest.raw()));
  run({"SET", keys.sweeper, "token"});
  const std::string record = codec::encode_record({.set = {}, .removed = {"a"}});
  const auto reply =
      run({"EVAL", sweep_script(), "6", keys.meta, keys.index, keys.counts, keys.owners, keys.log, keys.sweeper,
           "nonce", "100", record, "token", "60000", "60000", "1000", "a", lost.digest.raw()});
  ASSERT_EQ(reply.items.size(), 2U);
  EXPECT_EQ(reply.items[0].text, "OTHER");
  EXPECT_EQ(held("a"), newer);
}

TEST_F(RedisNewer, AnEntryOfAnOlderReleaseIsReplaced) {
  std::string older = codec::encode_entry(entry("a", "older"));
  --older[0];
  const auto ours = entry("a", "ours");
  for (auto& [kind, group] : every_kind(ours)) {
    run({"DEL", keys.counts, keys.owners});
    run({"HSET", keys.index, "a", older});
    if (kind == "replaces its own digest") group.replaces->digest = codec::digest_of(std::string("older"));
    if (kind == "replaces nothing") continue;
    EXPECT_EQ(remote.index->publish(group, source, soon()).value(), PublishOutcome::kPublished) << kind;
    EXPECT_EQ(held("a"), codec::encode_entry(ours)) << kind;
  }
}

}  // namespace
}  // namespace inductorfs::remote
