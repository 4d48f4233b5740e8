// SPDX-License-Identifier: Apache-2.0
// Shards of a Redis Cluster that fail: what the others hold is there all the time, and nobody waits for long.
#include <gtest/gtest.h>

#include <atomic>

#include "cluster_fixture.h"
#include "support/patience.h"

namespace inductorfs::remote {
namespace {

class ShardLoss : public ClusterFixture {
 protected:
  static constexpr Milliseconds kPatience{250};

  void SetUp() override {
    if (!inductorfs::testing::RedisServer::available()) INDUCTORFS_LACKS("redis-server");
  }
  void start(size_t replicas) {
    made_ = std::make_unique<RedisCluster>(
        RedisCluster::Options{.masters = 3, .replicas = replicas, .node_timeout_milliseconds = 1'500});
    open_on(*made_);
    options.without_progress = kPatience;
    remote = open();
    digests_ = publish_blobs(scope_at(1), 30);
    for (const codec::Digest& digest : digests_) by_node_[servers->owner(slot_of_blob(digest))].push_back(digest);
    for (size_t node = 0; node < 3; ++node) ASSERT_FALSE(by_node_[node].empty());
  }
  /// Everything that was written is in the replicas, too.
  void wait_for_replicas() {
    for (size_t node = 0; node < 3; ++node) {
      servers->at(node, {"SET", "{" + tag_of(node) + "}", "x"});
      ASSERT_EQ(servers->at(node, {"WAIT", "1", "20000"}).integer, 1);
    }
  }
  // A hash tag whose slot the node serves.
  std::string tag_of(size_t node) {
    for (int i = 0;; ++i) {
      if (servers->owner(slot_of_key(std::to_string(i))) == node) return std::to_string(i);
    }
  }
  Result<void> wait_for(const ScopeId& id, const Position& position) {
    const auto waited = remote.index->wait_for_changes({{id, position}}, Milliseconds(20'000), [] { return false; });
    return waited ? Result<void>() : fail(waited.error());
  }

  std::unique_ptr<RedisCluster> made_;
  std::vector<codec::Digest> digests_;
  std::map<size_t, std::vector<codec::Digest>> by_node_;
};

TEST_F(ShardLoss, AMasterThatIsKilledUnderLoadIsReplaced) {
  start(3);
  wait_for_replicas();
  const uint16_t lost_slot = slot_of_blob(by_node_[0].front());
  std::atomic<bool> over = false;
  std::atomic<int> failed_elsewhere = 0;
  std::atomic<int64_t> slowest = 0;
  std::atomic<int> rounds = 0;
  std::jthread load([&] {
    while (!over) {
      for (const auto& [node, digests] : by_node_) {
        const auto took = time_of([&, node = node, &digests = digests] {
          if (fetch_error(digests[static_cast<size_t>(rounds) % digests.size()]) && node != 0) ++failed_elsewhere;
        });
        slowest = std::max(slowest.load(), took.count());
      }
      ++rounds;
    }
  });
  ASSERT_TRUE(comes_right([&] { return rounds > 20; }));
  servers->server(0).kill();
  const size_t promoted = servers->wait_for_other_owner(lost_slot, 0);
  EXPECT_GE(promoted, 3U);
  ASSERT_TRUE(comes_right([&] { return !fetch_error(by_node_[0].front()); })) << "found by itself";
  const int then = rounds;
  ASSERT_TRUE(comes_right([&] { return rounds > then + 20; }));
  over = true;
  load.join();
  EXPECT_EQ(failed_elsewhere, 0) << "the other shards have lost nothing";
  EXPECT_LT(slowest, 2'000 * inductorfs::testing::kSlowness) << "nobody waits for the dead one";
  for (const codec::Digest& digest : digests_) EXPECT_EQ(fetch_error(digest), std::nullopt);

  // What was the master comes back as a replica, without data of its own.
  servers->server(0).start();
  servers->wait_until_whole();
  EXPECT_TRUE(publish(scope_at(promoted), "after", "the failover"));
  EXPECT_TRUE(
      comes_right([&] { return remote.operators->health().last_error.empty() || !fetch_error(digests_.front()); }));
}

TEST_F(ShardLoss, OfAShardWithoutAReplicaOnlyItsKeysAreMissed) {
  start(0);
  const ScopeId here = scope_at(1);
  const ScopeId there = scope_at(0);
  ASSERT_TRUE(publish(there, "a", "1"));
  Follower follower(remote, here);
  follower.catch_up();
  servers->server(0).kill();

  for (const codec::Digest& digest : by_node_[0]) EXPECT_EQ(fetch_error(digest), ErrorCode::kUnavailable);
  const auto took = time_of([&] {
    for (int i = 0; i < 200; ++i) {
      EXPECT_EQ(fetch_error(by_node_[0].front()), ErrorCode::kUnavailable);
      EXPECT_EQ(fetch_error(by_node_[1].front()), std::nullopt);
    }
  });
  EXPECT_LT(took, Milliseconds(4'000 * inductorfs::testing::kSlowness));
  FakeSink sink;
  remote.blobs->fetch(digests_, sink, soon());
  for (const auto& [node, digests] : by_node_) {
    const auto expected = node == 0 ? std::optional(ErrorCode::kUnavailable) : std::nullopt;
    for (const codec::Digest& digest : digests) EXPECT_EQ(sink.error_of(digest), expected) << node;
  }
  EXPECT_FALSE(remote.blobs->resting());
  const auto health = remote.operators->health();
  EXPECT_TRUE(health.reachable);
  EXPECT_NE(health.last_error.find(":" + std::to_string(servers->port(0))), std::string::npos) << health.last_error;
  const auto facts = remote.operators->probe(soon());
  ASSERT_TRUE(facts) << facts.error().to_string();
  ASSERT_EQ(facts->warnings.size(), 1U);
  EXPECT_NE(facts->warnings[0].find("does not answer"), std::string::npos) << facts->warnings[0];

  // A scope of another shard goes on; the group of the dead one is put off, and nothing of a sweep is taken for gone.
  EXPECT_FALSE(remote.index->read_changes(there, {}, soon()));
  const auto refused = publish(there, "b", "2");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kInternal) << "this group waits, not the queue";
  const auto swept = remote.index->sweep(here, true, soon());
  ASSERT_TRUE(swept) << swept.error().to_string();
  EXPECT_TRUE(swept->ours);
  EXPECT_EQ(swept->gone, 0U);
  follower.catch_up();
  EXPECT_EQ(follower.entries.size(), digests_.size());
  ASSERT_TRUE(wait_for(here, Position{}));

  servers->server(0).start();  // empty
  EXPECT_TRUE(comes_right([&] { return fetch_error(by_node_[0].front()) == ErrorCode::kNotFound; }));
  EXPECT_TRUE(comes_right([&] { return publish(there, "b", "2").has_value(); }));
}

TEST_F(ShardLoss, AShardThatHangsCostsOnePatience) {
  start(0);
  for (const codec::Digest& digest : digests_) ASSERT_EQ(fetch_error(digest), std::nullopt);
  servers->server(2).freeze();
  const auto first = time_of([&] {
    FakeSink sink;
    Budget budget(Deadline::after(Milliseconds(10'000)), kPatience, std::chrono::steady_clock::now());
    remote.blobs->fetch_within(digests_, sink, budget);
    for (const auto& [node, digests] : by_node_) {
      for (const codec::Digest& digest : digests) EXPECT_EQ(sink.error_of(digest).has_value(), node == 2) << node;
    }
  });
  EXPECT_LT(first, Milliseconds(2'000 * inductorfs::testing::kSlowness));
  const auto next = time_of([&] {
    for (const codec::Digest& digest : by_node_[0]) EXPECT_EQ(fetch_error(digest), std::nullopt);
  });
  EXPECT_LT(next, Milliseconds(1'500 * inductorfs::testing::kSlowness));
  servers->server(2).thaw();
  EXPECT_TRUE(comes_right([&] { return !fetch_error(by_node_[2].front()); }));
}

}  // namespace
}  // namespace inductorfs::remote
