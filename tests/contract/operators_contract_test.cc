// SPDX-License-Identifier: Apache-2.0
// What concerns operators (remote/operators.h) over each cluster.
#include <gtest/gtest.h>

#include <algorithm>

#include "clusters.h"

namespace inductorfs::remote {
namespace {

class OperatorsContract : public OverClusters {
 protected:
  std::vector<NodeRecord> nodes(size_t limit = kNodesLimit) {
    return other.operators->list_nodes(limit, soon()).value();
  }

  FakeSource source;
};

TEST_P(OperatorsContract, ARecordIsListedUntilItsMountLeaves) {
  EXPECT_TRUE(nodes().empty());
  ASSERT_EQ(remote.operators->beat("aa", "first", soon())->not_listed, "");
  ASSERT_EQ(other.operators->beat("bb", std::string("\0\xff\n", 3), soon())->not_listed, "");
  ASSERT_EQ(remote.operators->beat("aa", "second", soon())->not_listed, "");
  auto all = nodes();
  std::ranges::sort(all, {}, &NodeRecord::id);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].text, "second");
  EXPECT_EQ(all[1].text, std::string("\0\xff\n", 3));
  EXPECT_LT(all[0].age, Milliseconds(60'000));
  EXPECT_EQ(nodes(1).size(), 1U);
  remote.operators->leave("aa", soon());
  ASSERT_EQ(nodes().size(), 1U);
  EXPECT_EQ(nodes()[0].id, "bb");
}

TEST_P(OperatorsContract, AMountThatIsRememberedIsMissingUntilItIsForgotten) {
  const auto missing = [&](Milliseconds least) {
    std::vector<std::string> names;
    const auto found = other.operators->list_missing_nodes(least, soon());
    for (const auto& one : found.value()) names.push_back(one.name);
    std::ranges::sort(names);
    return names;
  };
  ASSERT_TRUE(remote.operators->remember_node("one", soon()));
  ASSERT_TRUE(other.operators->remember_node(std::string("\0\xff\n", 3), soon()));
  ASSERT_TRUE(remote.operators->remember_node("one", soon()));
  EXPECT_EQ(missing({}), (std::vector<std::string>{std::string("\0\xff\n", 3), "one"}));
  EXPECT_EQ(missing(kMissingAfter), std::vector<std::string>());
  remote.operators->forget_node("one", soon());
  EXPECT_EQ(missing({}), std::vector<std::string>{std::string("\0\xff\n", 3)});
  EXPECT_EQ(remote.operators->remember_node(std::string(kNodeNameLimit + 1, 'x'), soon()).error().code(),
            ErrorCode::kInvalid);
}

TEST_P(OperatorsContract, ARecordHasALimit) {
  EXPECT_TRUE(remote.operators->beat("aa", std::string(kNodeRecordLimit, 'x'), soon()));
  EXPECT_EQ(nodes()[0].text.size(), kNodeRecordLimit);
  EXPECT_EQ(remote.operators->beat("aa", std::string(kNodeRecordLimit + 1, 'x'), soon()).error().code(),
            ErrorCode::kInvalid);
}

TEST_P(OperatorsContract, OrdersReachEveryHeartbeatAndNobodyOverwritesAnothers) {
  EXPECT_EQ(remote.operators->beat("aa", "x", soon())->orders, "");
  EXPECT_EQ(remote.operators->read_orders(soon())->text, "");
  EXPECT_TRUE(remote.operators->replace_orders("", "one", soon()).value());
  EXPECT_FALSE(other.operators->replace_orders("", "two", soon()).value());
  EXPECT_EQ(other.operators->beat("bb", "x", soon())->orders, "one");
  EXPECT_TRUE(other.operators->replace_orders("one", "two", soon()).value());
  EXPECT_EQ(remote.operators->read_orders(soon())->text, "two");
  EXPECT_GT(remote.operators->read_orders(soon())->server_time, 1'600'000'000'000);
  const std::string most(kOrdersLimit, 'x');
  EXPECT_TRUE(remote.operators->replace_orders("two", most, soon()).value());
  EXPECT_EQ(remote.operators->beat("aa", "x", soon())->orders, most);
  EXPECT_EQ(remote.operators->replace_orders(most, most + "x", soon()).error().code(), ErrorCode::kInvalid);
}

TEST_P(OperatorsContract, APurgeRemovesWhatIsSelectedWithARecordInTheLog) {
  const ScopeId scope = "5c0be";
  std::vector<codec::Entry> entries;
  for (int i = 0; i < 1200; ++i) {
    const std::string name = (i % 2 == 0 ? "even/" : "odd/") + std::to_string(i);
    entries.push_back(entry_of(name, source.add("bytes of " + name)));
  }
  ASSERT_EQ(remote.index->publish(group_of(scope, entries), source, soon()).value(), PublishOutcome::kPublished);
  const Position before = other.index->read_changes(scope, {}, soon())->position;
  const auto is_even = [](const codec::Entry& entry) { return entry.path.starts_with("even/"); };

  const auto dry = remote.operators->purge(scope, is_even, true, soon()).value();
  EXPECT_EQ(dry.looked_at, 1200U);
  EXPECT_EQ(dry.selected, 600U);
  EXPECT_EQ(dry.removed, 0U);
  EXPECT_EQ(dry.paths.size(), kPurgePaths);
  EXPECT_EQ(other.index->read_changes(scope, before, soon())->position, before);

  EXPECT_EQ(remote.operators->purge(scope, is_even, false, soon())->removed, 600U);
  std::vector<std::string> removed;
  Position at = before;
  for (bool at_head = false; !at_head;) {
    const auto delta = other.index->read_changes(scope, at, soon()).value();
    EXPECT_FALSE(delta.reset);
    removed.insert(removed.end(), delta.removed.begin(), delta.removed.end());
    at_head = delta.at_head;
    at = delta.position;
  }
  EXPECT_EQ(removed.size(), 600U);
  EXPECT_TRUE(std::ranges::all_of(removed, [](const auto& path) { return path.starts_with("even/"); }));
  EXPECT_EQ(remote.operators->purge(scope, is_even, false, soon())->selected, 0U);
  EXPECT_EQ(remote.operators->purge("absent", is_even, false, soon())->looked_at, 0U);
}

TEST_P(OperatorsContract, APurgedContestCanBeWonAgain) {
  PublishGroup group = group_of("5c0be", {entry_of("key/a", source.add("a"))});
  group.contest = PublishGroup::Contest{"key", 0};
  ASSERT_EQ(remote.index->publish(group, source, soon()).value(), PublishOutcome::kPublished);
  ASSERT_EQ(remote.operators
                ->purge(
                    "5c0be", [](const auto&) { return true; }, false, soon())
                ->removed,
            1U);
  group.entries = {entry_of("key/b", source.add("b"))};
  EXPECT_EQ(remote.index->publish(group, source, soon()).value(), PublishOutcome::kPublished);
}

TEST_P(OperatorsContract, ABlobCanBeRemoved) {
  const auto there = entry_of("a", source.add("bytes"));
  ASSERT_EQ(remote.index->publish(group_of("5c0be", {there}), source, soon()).value(), PublishOutcome::kPublished);
  EXPECT_TRUE(remote.operators->remove_blob(there.digest, soon()));
  EXPECT_TRUE(remote.operators->remove_blob(there.digest, soon()));
  FakeSink sink;
  other.blobs->fetch({&there.digest, 1}, sink, soon());
  EXPECT_EQ(sink.error_of(there.digest), ErrorCode::kNotFound);
}

TEST_P(OperatorsContract, SaysWhatItIs) {
  const auto facts = remote.operators->probe(soon());
  ASSERT_TRUE(facts) << facts.error().to_string();
  EXPECT_FALSE(facts->version.empty());
  EXPECT_TRUE(facts->warnings.empty());
  EXPECT_TRUE(remote.operators->health().reachable);
}

INSTANTIATE_TEST_SUITE_P(Over, OperatorsContract, shared_clusters(), name_of_kind);

}  // namespace
}  // namespace inductorfs::remote
