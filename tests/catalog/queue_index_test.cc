// SPDX-License-Identifier: Apache-2.0
#include "catalog/database/queue_index.h"

#include <gtest/gtest.h>

namespace inductorfs::catalog {
namespace {

QueueIndex::Item item(const std::vector<std::string>& paths) {
  QueueIndex::Item made{"scope", paths, {}, {}, 0};
  for (const auto& path : paths) made.digests.push_back(codec::digest_of(path));
  return made;
}

TEST(QueueIndex, TheOldestIsTheSmallestId) {
  QueueIndex queue;
  EXPECT_FALSE(queue.oldest());
  queue.add(3, item({"c"}));
  queue.add(2, item({"b"}));
  EXPECT_EQ(queue.oldest(), 2);
  queue.remove(2);
  queue.remove(2);
  EXPECT_EQ(queue.oldest(), 3);
}

TEST(QueueIndex, PassesOverWhatIsParkedAndWhatWaitsBehindIt) {
  QueueIndex queue;
  const SteadyTime now{};
  queue.add(1, item({"a", "b"}));
  queue.add(2, item({"b"}));
  queue.add(3, item({"b", "c"}));
  queue.add(4, item({"c"}));
  queue.add(5, item({"d"}));
  EXPECT_EQ(queue.next(now).id, 1);
  queue.find(1)->not_before = now + Milliseconds(10);
  EXPECT_EQ(queue.next(now).id, 5) << "2 and 3 share a path with 1, and 4 with 3";
  queue.find(5)->not_before = now + Milliseconds(5);
  EXPECT_FALSE(queue.next(now).id);
  EXPECT_EQ(queue.next(now).due, now + Milliseconds(5));
  EXPECT_EQ(queue.next(now + Milliseconds(7)).id, 5);
  EXPECT_EQ(queue.next(now + Milliseconds(10)).id, 1);
  queue.find(2)->scope = "another";
  EXPECT_EQ(queue.next(now).id, 2);
  queue.hurry(now);
  EXPECT_EQ(queue.next(now).id, 1);
  queue.find(4)->attempts = 2;
  EXPECT_EQ(queue.parked(), 1U);
  EXPECT_EQ(QueueIndex().next(now).due, SteadyTime::max());
}

TEST(QueueIndex, FindsTheItemWithExactlyTheSamePaths) {
  QueueIndex queue;
  queue.add(1, item({"a", "b"}));
  EXPECT_EQ(queue.same_paths("scope", {"a", "b"}), 1);
  EXPECT_EQ(queue.same_paths("scope", {"b", "a"}), 1);
  EXPECT_FALSE(queue.same_paths("scope", {"a"}));
  EXPECT_FALSE(queue.same_paths("scope", {"a", "c"}));
  EXPECT_FALSE(queue.same_paths("scope", {"c"}));
  EXPECT_FALSE(queue.same_paths("another", {"a", "b"})) << "the facts have changed: both go out";
}

TEST(QueueIndex, RemovingAnOlderItemLeavesTheLaterOneOfThePath) {
  QueueIndex queue;
  queue.add(1, item({"a", "b"}));
  queue.add(2, item({"a"}));
  queue.remove(1);
  ASSERT_TRUE(queue.state("a"));
  EXPECT_EQ(queue.state("a")->paths, (std::vector<std::string>{"a"}));
  EXPECT_FALSE(queue.state("b"));
  EXPECT_EQ(queue.queued_digest("scope", "a"), codec::digest_of("a"));
  EXPECT_FALSE(queue.queued_digest("scope", "b"));
}

TEST(QueueIndex, KeepsWhatTwoScopesHaveUnderOnePathApart) {
  QueueIndex queue;
  QueueIndex::Item hers = item({"a"});
  hers.scope = "hers";
  QueueIndex::Item his = item({"a"});
  his.scope = "his";
  his.digests = {codec::digest_of("his")};
  queue.add(1, hers);
  queue.add(2, his);
  EXPECT_EQ(queue.same_paths("hers", {"a"}), 1);
  EXPECT_EQ(queue.same_paths("his", {"a"}), 2);
  EXPECT_EQ(queue.queued_digest("hers", "a"), codec::digest_of("a"));
  const auto both = queue.items_with("a");
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(both.front()->scope, "hers");
  EXPECT_EQ(both.back()->scope, "his");
  queue.remove(2);
  EXPECT_EQ(queue.items_with("a").size(), 1U);
  EXPECT_TRUE(queue.state("a")) << "hers still waits";
}

TEST(QueueIndex, ShowsTheLastErrorWhileQueuedAndTheOutcomeAfter) {
  QueueIndex queue;
  queue.add(1, item({"a"}));
  queue.find(1)->error = "unavailable";
  EXPECT_EQ(queue.state("a")->state, PublishState::kQueued);
  EXPECT_EQ(queue.state("a")->why, "unavailable");
  queue.remove(1);
  queue.record({{"a"}, PublishState::kKeptLocal, "superseded", std::nullopt});
  EXPECT_EQ(queue.state("a")->state, PublishState::kKeptLocal);
  EXPECT_EQ(queue.state("a")->why, "superseded");
}

TEST(QueueIndex, ForgetsTheOldestOutcomesButNotARepeatedOne) {
  QueueIndex queue;
  queue.record({{"first"}, PublishState::kPublished, {}, std::nullopt});
  queue.record({{"again"}, PublishState::kRefused, {}, std::nullopt});
  for (size_t i = 0; i < QueueIndex::kReportLimit - 1; ++i) {
    if (i == 5) queue.record({{"again"}, PublishState::kPublished, {}, std::nullopt});
    queue.record({{"p" + std::to_string(i)}, PublishState::kPublished, {}, std::nullopt});
  }
  EXPECT_FALSE(queue.state("first"));
  ASSERT_TRUE(queue.state("again"));
  EXPECT_EQ(queue.state("again")->state, PublishState::kPublished);
}

}  // namespace
}  // namespace inductorfs::catalog
