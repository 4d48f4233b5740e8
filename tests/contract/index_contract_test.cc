// SPDX-License-Identifier: Apache-2.0
// The index (remote/index.h) over each cluster.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "clusters.h"

namespace inductorfs::remote {
namespace {

class IndexContract : public OverPublishers {
 protected:
  PublishGroup contested(const std::string& path, const std::string& text, uint64_t most = 0) {
    PublishGroup group = group_of(scope, {entry(path, text)});
    group.contest = PublishGroup::Contest{"fxgraph/key", most};
    return group;
  }
  PublishGroup replacing(const std::string& text, std::optional<codec::Digest> digest) {
    PublishGroup group = group_of(scope, {entry("cache/merged", text)});
    group.replaces = PublishGroup::Replaces{digest};
    return group;
  }
};

TEST_P(IndexContract, AnUnknownScopeIsEmpty) {
  const auto nothing = other.index->read_changes(scope, {}, soon());
  ASSERT_TRUE(nothing);
  EXPECT_EQ(nothing->position, Position{});
  EXPECT_TRUE(nothing->set.empty());
  const auto lost = other.index->read_changes(scope, {7, "another history"}, soon());
  ASSERT_TRUE(lost);
  EXPECT_TRUE(lost->reset);
  EXPECT_EQ(lost->position, Position{});
  EXPECT_TRUE(lost->set.empty());
}

TEST_P(IndexContract, AGroupBecomesVisibleToOthersWithEveryAttribute) {
  auto first = entry("triton/0/KEY/a.cubin", "cubin");
  first.mode = 0755;
  first.size = 1'234'567'890'123;
  const auto second = entry("triton/0/KEY/a.json", "json");
  ASSERT_EQ(publish(group_of(scope, {first, second})), PublishOutcome::kPublished);
  const auto delta = other.index->read_changes(scope, {}, soon());
  ASSERT_TRUE(delta);
  EXPECT_EQ(delta->set, (std::deque<codec::Entry>{first, second}));
  EXPECT_EQ(delta->position.generation, 1U);
  const auto after = other.index->read_changes(scope, delta->position, soon());
  ASSERT_TRUE(after);
  EXPECT_FALSE(after->reset);
  EXPECT_TRUE(after->set.empty());
  EXPECT_EQ(after->position, delta->position);
}

TEST_P(IndexContract, ScopesAreApart) {
  ASSERT_EQ(publish(group_of(scope, {entry("a", "1")})), PublishOutcome::kPublished);
  Follower follower(other, "0ther");
  follower.catch_up();
  EXPECT_TRUE(follower.entries.empty());
}

TEST_P(IndexContract, AFollowerIsToldOnlyWhatChangedAndTheLastWordCounts) {
  ASSERT_EQ(publish(group_of(scope, {entry("a", "1"), entry("b", "1")})), PublishOutcome::kPublished);
  Follower follower(other, scope);
  follower.catch_up();
  const auto newer = entry("a", "3");
  ASSERT_EQ(publish(group_of(scope, {entry("a", "2")})), PublishOutcome::kPublished);
  ASSERT_EQ(publish(group_of(scope, {newer})), PublishOutcome::kPublished);
  ASSERT_TRUE(other.index->report_lost(scope, "b", codec::digest_of("1"), soon()));
  const auto delta = other.index->read_changes(scope, follower.position, soon());
  ASSERT_TRUE(delta);
  EXPECT_FALSE(delta->reset);
  EXPECT_EQ(delta->set, std::deque<codec::Entry>{newer});
  EXPECT_EQ(delta->removed, std::vector<std::string>{"b"});
}

TEST_P(IndexContract, APositionOfAnotherHistoryGetsAWholeSnapshot) {
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(publish(group_of(scope, {entry("p" + std::to_string(i), "x")})), PublishOutcome::kPublished);
  }
  for (const Position& stale : {Position{2, "other nonce"}, Position{3, "other nonce"}, Position{99, "ahead"}}) {
    const auto delta = other.index->read_changes(scope, stale, soon());
    ASSERT_TRUE(delta) << delta.error().to_string();
    EXPECT_TRUE(delta->reset);
    EXPECT_EQ(delta->set.size(), 3U);
    EXPECT_EQ(delta->position.generation, 3U);
  }
}

TEST_P(IndexContract, FirstOneWinsAContest) {
  const auto winner = contested("fxgraph/ab/key/1", "mine");
  ASSERT_EQ(publish(winner), PublishOutcome::kPublished);
  EXPECT_EQ(publish(contested("fxgraph/ab/key/2", "yours")), PublishOutcome::kSuperseded);
  Follower follower(other, scope);
  follower.catch_up();
  EXPECT_TRUE(follower.has("fxgraph/ab/key/1"));
  EXPECT_FALSE(follower.has("fxgraph/ab/key/2"));
  EXPECT_EQ(follower.position.generation, 1U) << "a lost contest must change nothing";
}

TEST_P(IndexContract, AContestAdmitsAsManyAsItSays) {
  EXPECT_EQ(publish(contested("k/1", "1", 2)), PublishOutcome::kPublished);
  EXPECT_EQ(publish(contested("k/2", "2", 2)), PublishOutcome::kPublished);
  EXPECT_EQ(publish(contested("k/3", "3", 2)), PublishOutcome::kPublished);
  EXPECT_EQ(publish(contested("k/4", "4", 2)), PublishOutcome::kSuperseded);
}

TEST_P(IndexContract, RepeatingAGroupAfterAnUnknownOutcomeIsPublishedAndCountsOnce) {
  const auto group = contested("k/1", "1", 1);
  ASSERT_EQ(publish(group), PublishOutcome::kPublished);
  EXPECT_EQ(publish(group), PublishOutcome::kPublished);
  EXPECT_EQ(publish(group), PublishOutcome::kPublished);
  Follower follower(other, scope);
  follower.catch_up();
  EXPECT_EQ(follower.position.generation, 1U);
  EXPECT_EQ(publish(contested("k/2", "2", 1)), PublishOutcome::kPublished) << "the repetition must not be counted";
  auto merged = replacing("merged", std::nullopt);
  ASSERT_EQ(publish(merged), PublishOutcome::kPublished);
  EXPECT_EQ(publish(merged), PublishOutcome::kPublished) << "what it was to replace is gone: by itself";
}

TEST_P(IndexContract, ReplacesOnlyWhatItWasMergedWith) {
  const auto first = replacing("one", std::nullopt);
  ASSERT_EQ(publish(first), PublishOutcome::kPublished);
  EXPECT_EQ(publish(replacing("two", std::nullopt)), PublishOutcome::kConflict);
  EXPECT_EQ(publish(replacing("two", codec::digest_of("other"))), PublishOutcome::kConflict);
  EXPECT_EQ(publish(replacing("two", first.entries[0].digest)), PublishOutcome::kPublished);
  EXPECT_EQ(publish(replacing("three", first.entries[0].digest)), PublishOutcome::kConflict);
  PublishGroup absent = group_of(scope, {entry("nowhere", "x")});
  absent.replaces = PublishGroup::Replaces{codec::digest_of("x")};
  EXPECT_EQ(publish(absent), PublishOutcome::kConflict);
}

TEST_P(IndexContract, ALostEntryGoesOnlyWhileItHasThatDigest) {
  const auto held = entry("a", "now");
  ASSERT_EQ(publish(group_of(scope, {held})), PublishOutcome::kPublished);
  Follower follower(other, scope);
  ASSERT_TRUE(remote.index->report_lost(scope, "a", codec::digest_of("before"), soon()));
  ASSERT_TRUE(remote.index->report_lost(scope, "absent", held.digest, soon()));
  follower.catch_up();
  EXPECT_TRUE(follower.has("a"));
  EXPECT_EQ(follower.position.generation, 1U);
  ASSERT_TRUE(remote.index->report_lost(scope, "a", held.digest, soon()));
  follower.catch_up();
  EXPECT_FALSE(follower.has("a"));
  EXPECT_EQ(follower.resets, 0);
}

TEST_P(IndexContract, ALostFileOpensItsContestAgainButOnceForItsGroup) {
  PublishGroup set = contested("triton/KEY/cubin", "c1");
  set.entries.push_back(entry("triton/KEY/json", "j1"));
  ASSERT_EQ(publish(set), PublishOutcome::kPublished);
  PublishGroup again = contested("triton/KEY/cubin", "c2");
  again.entries.push_back(entry("triton/KEY/json", "j2"));
  ASSERT_EQ(publish(again), PublishOutcome::kSuperseded);
  ASSERT_TRUE(remote.index->report_lost(scope, "triton/KEY/cubin", set.entries[0].digest, soon()));
  ASSERT_EQ(publish(again), PublishOutcome::kPublished);
  // The first group's other file is not in the index any more: its report must not take the new group's place.
  ASSERT_TRUE(remote.index->report_lost(scope, "triton/KEY/json", set.entries[1].digest, soon()));
  EXPECT_EQ(publish(set), PublishOutcome::kSuperseded);
}

TEST_P(IndexContract, TwoLostFilesOfOneGroupOpenTheContestOnce) {
  PublishGroup set = contested("k/1", "1", 1);
  set.entries.push_back(entry("k/1b", "1b"));
  ASSERT_EQ(publish(set), PublishOutcome::kPublished);
  ASSERT_EQ(publish(contested("k/2", "2", 1)), PublishOutcome::kPublished);
  ASSERT_TRUE(remote.index->report_lost(scope, "k/1", set.entries[0].digest, soon()));
  ASSERT_TRUE(remote.index->report_lost(scope, "k/1b", set.entries[1].digest, soon()));
  EXPECT_EQ(publish(contested("k/3", "3", 1)), PublishOutcome::kPublished);
  EXPECT_EQ(publish(contested("k/4", "4", 1)), PublishOutcome::kSuperseded);
}

TEST_P(IndexContract, SendsOnlyBlobsThatTheClusterLacks) {
  const auto first = entry("a", "same bytes");
  ASSERT_EQ(publish(group_of(scope, {first})), PublishOutcome::kPublished);
  EXPECT_EQ(source.reads, 1);
  ASSERT_EQ(publish(group_of(scope, {entry("b", "same bytes"), entry("c", "same bytes")})), PublishOutcome::kPublished);
  EXPECT_EQ(source.reads, 1);
  ASSERT_TRUE(remote.index->report_lost(scope, "a", first.digest, soon()));
  ASSERT_EQ(publish(group_of(scope, {first})), PublishOutcome::kPublished);
  EXPECT_EQ(source.reads, 2) << "what was reported may be damaged: it must be sent again";
}

TEST_P(IndexContract, BytesThatAreThereAlreadyAreDoneWhoeverMadeThem) {
  auto theirs = entry("a", "same bytes");
  auto ours = theirs;
  ours.mtime_ns += 1'000'000'000;
  ours.origin = "other/mount";
  ASSERT_EQ(publish(group_of(scope, {theirs})), PublishOutcome::kPublished);
  EXPECT_EQ(publish(group_of(scope, {ours})), PublishOutcome::kHeld);
  auto contested = group_of(scope, {ours});
  contested.contest = PublishGroup::Contest{"a", 0};
  EXPECT_EQ(publish(contested), PublishOutcome::kHeld);
  auto first = group_of(scope, {ours});
  first.first_of_path = true;
  EXPECT_EQ(publish(first), PublishOutcome::kHeld);
  EXPECT_EQ(source.reads, 1);
  Follower follower(other, scope);
  follower.catch_up();
  EXPECT_EQ(follower.position.generation, 1U) << "nobody has anything to read";
  EXPECT_EQ(follower.entries.at("a"), theirs);
}

TEST_P(IndexContract, BytesThatTheClusterLostAreSentAgainUnderTheirEntryAndToldOf) {
  const auto held = entry("a", "same bytes");
  auto again = held;
  again.mtime_ns += 1'000'000'000;
  for (const bool first_of_path : {false, true}) {
    ASSERT_EQ(publish(group_of(scope, {held})), PublishOutcome::kPublished);
    Follower follower(other, scope);
    follower.catch_up();
    cluster->evict(held.digest);
    ASSERT_EQ(fetch({held.digest}).error_of(held.digest), ErrorCode::kNotFound);
    auto group = group_of(scope, {again});
    group.first_of_path = first_of_path;
    EXPECT_EQ(publish(group), PublishOutcome::kPublished);
    EXPECT_EQ(fetch({held.digest}).error_of(held.digest), std::nullopt);
    const auto delta = other.index->read_changes(scope, follower.position, soon());
    ASSERT_TRUE(delta);
    EXPECT_EQ(delta->set, std::deque<codec::Entry>{again}) << "hosts that missed it look again";
    EXPECT_FALSE(delta->reset);
    ASSERT_TRUE(remote.index->report_lost(scope, "a", held.digest, soon()));
  }
}

TEST_P(IndexContract, ARepairOfAContestIsNoFurtherGroupInIt) {
  const auto group = contested("k/1", "1", 1);
  ASSERT_EQ(publish(group), PublishOutcome::kPublished);
  cluster->evict(group.entries[0].digest);
  EXPECT_EQ(publish(group), PublishOutcome::kPublished);
  EXPECT_EQ(publish(contested("k/2", "2", 1)), PublishOutcome::kPublished);
  EXPECT_EQ(publish(contested("k/3", "3", 1)), PublishOutcome::kSuperseded);
}

TEST_P(IndexContract, TheFirstOfAPathStaysWhileItsBytesDo) {
  const auto first_of = [&](const std::string& text) {
    auto group = group_of(scope, {entry("ab/kernel.so", text)});
    group.entries[0].origin = text + "/mount";
    group.first_of_path = true;
    return group;
  };
  const auto winner = first_of("linked here");
  ASSERT_EQ(publish(winner), PublishOutcome::kPublished);
  EXPECT_EQ(publish(first_of("linked there")), PublishOutcome::kSuperseded);
  EXPECT_EQ(source.reads, 1) << "its bytes need not be sent";
  Follower follower(other, scope);
  follower.catch_up();
  EXPECT_EQ(follower.position.generation, 1U);
  EXPECT_EQ(follower.entries.at("ab/kernel.so"), winner.entries[0]);
  cluster->evict(winner.entries[0].digest);
  const auto next = first_of("linked there");
  EXPECT_EQ(publish(next), PublishOutcome::kPublished) << "what nobody can have stands in nobody's way";
  follower.catch_up();
  EXPECT_EQ(follower.entries.at("ab/kernel.so"), next.entries[0]);
  EXPECT_EQ(publish(winner), PublishOutcome::kSuperseded);
}

TEST_P(IndexContract, TheFirstOfAPathMayReplaceItsOwn) {
  for (const char* text : {"tuned", "tuned further"}) {
    auto group = group_of(scope, {entry("ab/tuning", text)});
    group.first_of_path = true;
    EXPECT_EQ(publish(group), PublishOutcome::kPublished) << text;
  }
}

TEST_P(IndexContract, ManyFirstsOfOnePathLeaveOneRecord) {
  constexpr int kPublishers = 8;
  std::atomic<int> won = 0;
  {
    std::vector<std::jthread> publishers;
    for (int p = 0; p < kPublishers; ++p) {
      publishers.emplace_back([&, p] {
        FakeSource own;
        auto group = group_of(scope, {entry_of("ab/kernel.so", own.add("linked by " + std::to_string(p)))});
        group.entries[0].origin = "host" + std::to_string(p) + "/mount";
        group.first_of_path = true;
        auto outcome = PublishOutcome::kClaimed;
        while (outcome == PublishOutcome::kClaimed) {
          const auto answer = remote.index->publish(group, own, soon());
          ASSERT_TRUE(answer) << answer.error().to_string();
          outcome = *answer;
        }
        if (outcome == PublishOutcome::kPublished) ++won;
      });
    }
  }
  EXPECT_EQ(won, 1);
  Follower follower(other, scope);
  follower.catch_up();
  EXPECT_EQ(follower.position.generation, 1U);
}

TEST_P(IndexContract, ASourceThatFailsPublishesNothing) {
  const auto good = entry("good", "good");
  const auto bad = entry_of("bad", codec::digest_of("the source has it not"));
  const auto outcome = remote.index->publish(group_of(scope, {good, bad}), source, soon());
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code(), ErrorCode::kNotFound);
  Follower follower(other, scope);
  follower.catch_up();
  EXPECT_TRUE(follower.entries.empty());
  EXPECT_EQ(publish(group_of(scope, {good})), PublishOutcome::kPublished) << "the remote goes on";
}

TEST_P(IndexContract, RefusesGroupsOutOfBounds) {
  const auto code = [&](const PublishGroup& group) {
    const auto outcome = remote.index->publish(group, source, soon());
    return outcome ? std::optional<ErrorCode>() : outcome.error().code();
  };
  EXPECT_EQ(code(group_of(scope, {})), ErrorCode::kInvalid);
  EXPECT_EQ(code(group_of(scope, {entry("../up", "x")})), ErrorCode::kInvalid);
  EXPECT_EQ(code(group_of(scope, {entry("a", "x"), entry("a", "y")})), ErrorCode::kInvalid);
  EXPECT_EQ(code(group_of("No{Scope}", {entry("a", "x")})), ErrorCode::kInvalid);
  auto two_firsts = group_of(scope, {entry("a", "x"), entry("b", "y")});
  two_firsts.first_of_path = true;
  EXPECT_EQ(code(two_firsts), ErrorCode::kInvalid);
  std::vector<codec::Entry> many;
  for (size_t i = 0; i <= codec::kRecordEntryLimit; ++i) many.push_back(entry("p" + std::to_string(i), "x"));
  EXPECT_EQ(code(group_of(scope, many)), ErrorCode::kTooLarge);
  many.pop_back();
  EXPECT_EQ(code(group_of(scope, many)), std::nullopt) << "the largest group that is allowed";
  for (auto& one : many) one.path += "/" + std::string(900, 'x');
  EXPECT_EQ(code(group_of(scope, many)), ErrorCode::kTooLarge) << "few enough entries, too many bytes";
}

TEST_P(IndexContract, AWaiterWakesWhenAScopeMoves) {
  Follower follower(other, scope);
  follower.catch_up();
  std::atomic<bool> woken = false;
  Result<std::vector<ScopeId>> outcome;
  std::jthread waiter([&] {
    outcome = other.index->wait_for_changes({{"unm0ved", {}}, {scope, follower.position}}, Milliseconds(60000),
                                            [] { return false; });
    woken = true;
  });
  ASSERT_EQ(publish(group_of(scope, {entry("a", "1")})), PublishOutcome::kPublished);
  waiter.join();
  EXPECT_TRUE(woken);
  ASSERT_TRUE(outcome) << outcome.error().to_string();
  EXPECT_EQ(*outcome, std::vector<ScopeId>{scope}) << "the one that moved";
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(other.index->wait_for_changes({{scope, follower.position}}, Milliseconds(60000), [] { return false; }))
      << "it has moved before the wait began";
  EXPECT_LT(std::chrono::steady_clock::now() - start, Milliseconds(10000));
}

TEST_P(IndexContract, AWaiterNoticesAHistoryThatIsNotItsOwn) {
  ASSERT_EQ(publish(group_of(scope, {entry("a", "1")})), PublishOutcome::kPublished);
  const auto named = other.index->wait_for_changes({{scope, {5, "lost"}}}, Milliseconds(60000), [] { return false; });
  ASSERT_TRUE(named);
  EXPECT_EQ(*named, std::vector<ScopeId>{scope});
}

TEST_P(IndexContract, AWaiterEndsInTimeAndWhenItIsCancelled) {
  const auto start = std::chrono::steady_clock::now();
  const auto nothing = other.index->wait_for_changes({{scope, {}}}, Milliseconds(150), [] { return false; });
  ASSERT_TRUE(nothing);
  EXPECT_TRUE(nothing->empty());
  EXPECT_GE(std::chrono::steady_clock::now() - start, Milliseconds(100));
  std::atomic<int> asked = 0;
  EXPECT_TRUE(other.index->wait_for_changes({{scope, {}}}, Milliseconds(60000), [&] { return ++asked > 3; }));
  EXPECT_TRUE(other.index->wait_for_changes({}, Milliseconds(50), [] { return false; }));
  EXPECT_LT(std::chrono::steady_clock::now() - start, Milliseconds(20000));
}

TEST_P(IndexContract, ConcurrentPublishersAndFollowersAgreeInTheEnd) {
  constexpr int kPublishers = 4;
  constexpr int kEach = 25;
  std::atomic<int> won = 0;
  std::atomic<bool> over = false;
  Follower early(other, scope);
  std::jthread reader([&] {
    while (!over) early.catch_up();
  });
  {
    std::vector<std::jthread> publishers;
    for (int p = 0; p < kPublishers; ++p) {
      publishers.emplace_back([&, p] {
        FakeSource own;
        for (int i = 0; i < kEach; ++i) {
          const std::string text = std::to_string(p) + "/" + std::to_string(i);
          const codec::Digest digest = own.add(text);
          PublishGroup group = group_of(scope, {entry_of("own/" + text, digest), entry_of("shared", digest)});
          group.contest = PublishGroup::Contest{"round" + std::to_string(i), 0};
          const auto outcome = remote.index->publish(group, own, soon());
          ASSERT_TRUE(outcome) << outcome.error().to_string();
          if (*outcome == PublishOutcome::kPublished) ++won;
        }
      });
    }
  }
  over = true;
  reader.join();
  EXPECT_EQ(won, kEach) << "one winner in each contest";
  early.catch_up();
  Follower late(other, scope);
  late.catch_up();
  EXPECT_EQ(early.entries, late.entries);
  EXPECT_EQ(late.entries.size(), kEach + 1U);
  EXPECT_EQ(late.position.generation, static_cast<uint64_t>(kEach));
}

TEST_P(IndexContract, ASweepRemovesWhatHasNoBlobAndOpensItsContestAgain) {
  const auto kept = entry("kept", "kept");
  const auto gone = contested("k/1", "gone");
  ASSERT_EQ(publish(group_of(scope, {kept})), PublishOutcome::kPublished);
  ASSERT_EQ(publish(gone), PublishOutcome::kPublished);
  Follower follower(other, scope);
  follower.catch_up();
  cluster->evict(gone.entries[0].digest);
  const auto report = remote.index->sweep(scope, false, soon());
  ASSERT_TRUE(report) << report.error().to_string();
  EXPECT_TRUE(report->ours);
  EXPECT_EQ(report->looked_at, 2U);
  EXPECT_EQ(report->gone, 1U);
  EXPECT_EQ(report->unused, 0U);
  follower.catch_up();
  EXPECT_TRUE(follower.has("kept"));
  EXPECT_FALSE(follower.has("k/1"));
  EXPECT_EQ(follower.resets, 0) << "followers are told";
  EXPECT_EQ(publish(contested("k/2", "next")), PublishOutcome::kPublished);
  EXPECT_TRUE(remote.index->sweep("0ther", false, soon())) << "of a scope that nobody has";
}

TEST_P(IndexContract, WhatOneHostAnnouncesAnotherLists) {
  ASSERT_TRUE(remote.index->announce_scope(information("a"), soon()));
  ASSERT_TRUE(other.index->announce_scope(information("b"), soon()));
  ASSERT_TRUE(other.index->announce_scope(information("a"), soon())) << "hosts with equal facts announce the same";
  auto scopes = other.index->list_scopes(10, soon());
  ASSERT_TRUE(scopes) << scopes.error().to_string();
  EXPECT_EQ(scopes->size(), 2U);
  EXPECT_NE(std::ranges::find(*scopes, information("a")), scopes->end());
  EXPECT_NE(std::ranges::find(*scopes, information("b")), scopes->end());
  EXPECT_EQ(remote.index->list_scopes(1, soon())->size(), 1U);
}

TEST_P(IndexContract, TellsWhichScopesHaveAKey) {
  ASSERT_EQ(publish(contested("k/1", "one")), PublishOutcome::kPublished);
  const std::vector<ScopeId> asked{"0ther", scope, "an0ther"};
  for (const char* name : {"k/1", "fxgraph/key"}) {
    const auto found = other.index->scopes_with(name, asked, soon());
    ASSERT_TRUE(found) << found.error().to_string();
    EXPECT_EQ(*found, std::vector<ScopeId>{scope}) << name;
  }
  EXPECT_TRUE(other.index->scopes_with("k/2", asked, soon())->empty());
  EXPECT_TRUE(other.index->scopes_with("k/1", {}, soon())->empty());
}

TEST_P(IndexContract, ACancelledHandleAnswersAtOnce) {
  const auto view = remote.index->index_until([] { return true; });
  if (view == remote.index) return;  // no call of it rests
  const auto start = std::chrono::steady_clock::now();
  const auto read = view->read_changes(scope, {}, soon());
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code(), ErrorCode::kUnavailable);
  EXPECT_LT(std::chrono::steady_clock::now() - start, Milliseconds(1000));
  EXPECT_TRUE(remote.index->read_changes(scope, {}, soon()));
}

INSTANTIATE_TEST_SUITE_P(Over, IndexContract, shared_clusters(), name_of_kind);

}  // namespace
}  // namespace inductorfs::remote
