// SPDX-License-Identifier: Apache-2.0
// Catalog::follow(): scopes that come, go and return.
#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "catalog/catalog_fixture.h"
#include "catalog/tail.h"

namespace inductorfs::catalog {
namespace {

using Scopes = std::vector<remote::ScopeId>;

class FollowTest : public CatalogFixture {
 protected:
  /// Once a change is on the disk: the tail is idle.
  void expect_on_disk(const remote::ScopeId& scope, size_t entries) {
    EXPECT_TRUE(eventually([&] { return catalog_->status().synced; }));
    close();
    auto database = Database::open(options_.file, *Database::lock(options_.file));
    ASSERT_TRUE(database);
    EXPECT_EQ(*database->count_entries(scope, 1'000'000), entries) << scope;
  }
  void forget_told() {
    told_.with([](Told& told) { told = {}; });
  }
};

TEST_F(FollowTest, WhatIsNoLongerFollowedGoesBeforeItReturnsAndIsTold) {
  remote_.set("aa", elsewhere("d/f", "1"));
  remote_.set("bb", elsewhere("b/g", "2"));
  Catalog& catalog = start_synced();
  forget_told();
  catalog.follow({"bb"});
  EXPECT_FALSE(catalog.find("d/f"));
  EXPECT_FALSE(catalog.has_directory("d"));
  EXPECT_EQ(changed(), (std::vector<std::string>{"d/f"}));
  EXPECT_TRUE(catalog.find("b/g"));
  EXPECT_EQ(catalog.status().entries, 1U);
  EXPECT_TRUE(catalog.status().synced) << "nothing new has to be read";
  remote_.set("aa", elsewhere("d/h", "3"));
  remote_.set("bb", elsewhere("b/h", "3"));
  EXPECT_TRUE(eventually([&] { return catalog.find("b/h").has_value(); }));
  EXPECT_FALSE(catalog.find("d/h"));
}

TEST_F(FollowTest, ALargeScopeThatGoesWhileItIsWrittenDownIsToldAtOnceAndKept) {
  constexpr size_t kMany = 20'000;
  options_.entry_limit = kMany;
  remote_.set("cc", elsewhere("e", "1"));
  remote::Delta snapshot{true, {}, {}, {1, "nonce-1"}};
  for (size_t i = 0; i < kMany; ++i) snapshot.set.push_back(elsewhere("d/" + std::to_string(i), "1"));
  remote_.script("aa", std::move(snapshot));
  Catalog& catalog = start_synced();  // in memory: it is on its way to the disk
  forget_told();
  catalog.follow({"bb"});
  EXPECT_FALSE(catalog.find("d/0"));
  EXPECT_FALSE(catalog.has_directory("d"));
  EXPECT_EQ(catalog.status().entries, 0U);
  EXPECT_EQ(changed().size(), kMany);
  catalog.follow({"bb", "cc"});
  EXPECT_TRUE(catalog.wait_synced(Deadline::after(kPatience)));
  EXPECT_TRUE(catalog.find("e")) << "memory has room for it again";
  EXPECT_EQ(counted("catalog.rejected"), 0U);
  remote_.fail_with(Error(ErrorCode::kUnavailable, "down"));
  catalog.follow({"aa"});
  EXPECT_TRUE(eventually([&] { return catalog.status().entries == kMany; })) << "from the disk";
}

TEST_F(FollowTest, WhatAScopeThatLeavesWasInTheWayOfIsReadAgain) {
  constexpr size_t kLeaving = 600;
  constexpr size_t kStaying = 1'000;
  options_.scopes = {"aa", "zz"};
  options_.entry_limit = 1'200;
  const auto script = [&](const remote::ScopeId& scope, size_t entries) {
    for (size_t i = 0; i < entries; ++i) remote_.set(scope, elsewhere(scope + "/" + std::to_string(i), "1"));
  };
  script("aa", kLeaving);
  script("zz", kStaying);
  Catalog& catalog = open();
  bool left = false;  // the listener is called by one thread
  catalog.start(
      [&](const std::vector<std::string>& paths) {
        if (left || !paths.front().starts_with("zz/")) return;
        left = true;  // a part of it has come, and the other one is still to be written down
        catalog.follow({"zz"});
      },
      [](const PublishReport&) {});
  EXPECT_TRUE(eventually([&] { return catalog.status().entries == kStaying; }));
  EXPECT_EQ(counted("catalog.rejected"), 0U);
  catalog.stop();
}

TEST_F(FollowTest, DoesNotWaitForAClusterThatHangs) {
  remote_.set("aa", elsewhere("f", "1"));
  Catalog& catalog = start_synced();
  remote_.hang(true, 2 * kPatience);
  remote_.set("bb", elsewhere("b/g", "2"));
  const uint64_t reads = remote_.state.with([](const FakeRemote::State& now) { return now.reads; });
  const auto begin = std::chrono::steady_clock::now();
  catalog.follow({"cc"});
  EXPECT_FALSE(catalog.find("f"));
  EXPECT_FALSE(catalog.status().synced);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kPatience);
  remote_.hang(false);
  EXPECT_TRUE(catalog.wait_synced(Deadline::after(kPatience)));
  EXPECT_GT(remote_.state.with([](const FakeRemote::State& now) { return now.reads; }), reads);
}

TEST_F(FollowTest, NewScopesAreReadAtOnceWhateverTheTailWaitsFor) {
  options_.poll_interval = std::chrono::minutes(10);
  remote_.set("cc", elsewhere("f", "1"));
  Catalog& catalog = start_synced();
  EXPECT_FALSE(catalog.find("f"));
  catalog.follow({"aa", "bb", "cc"});
  EXPECT_TRUE(catalog.wait_synced(Deadline::after(kPatience)));
  ASSERT_TRUE(catalog.find("f"));
  EXPECT_EQ(catalog.find("f")->scope, "cc");
  EXPECT_TRUE(was_told("f"));
}

TEST_F(FollowTest, AReadThatHangsIsGivenUpForTheNewScopes) {
  Catalog& catalog = start_synced();
  remote_.hang(true);
  remote_.set("aa", elsewhere("f", "1"));
  catalog.follow({"aa", "bb", "cc"});  // now some read hangs
  const uint64_t errors = counted("tail.errors");
  catalog.follow({"aa", "dd"});
  remote_.hang(false);
  EXPECT_TRUE(catalog.wait_synced(Deadline::after(kPatience)));
  EXPECT_TRUE(eventually([&] { return catalog.find("f").has_value(); }));
  EXPECT_EQ(counted("tail.errors"), errors) << "nobody failed";
}

TEST_F(FollowTest, IsNotSyncedUntilTheNewScopeWasRead) {
  Catalog& catalog = start_synced();
  remote_.fail_with(Error(ErrorCode::kUnavailable, "down"));
  catalog.follow({"aa", "bb", "cc"});
  EXPECT_FALSE(catalog.status().synced);
  EXPECT_FALSE(catalog.wait_synced(Deadline::after(Milliseconds(1))));
  remote_.fail_with(std::nullopt);
  EXPECT_TRUE(catalog.wait_synced(Deadline::after(kPatience)));
  catalog.follow({});
  EXPECT_TRUE(catalog.status().synced);
}

TEST_F(FollowTest, AScopeThatReturnsCostsNoSnapshot) {
  remote_.set("aa", elsewhere("f", "1"));
  remote_.set("aa", elsewhere("goes", "1"));
  Catalog& catalog = start_synced();
  catalog.follow({"bb"});
  remote_.set("aa", elsewhere("g", "2"));
  remote_.remove("aa", "goes");
  const uint64_t resets = counted("catalog.resets");
  remote_.fail_with(Error(ErrorCode::kUnavailable, "down"));
  forget_told();
  catalog.follow({"aa", "bb"});
  EXPECT_TRUE(eventually([&] { return catalog.find("f") && catalog.find("goes"); })) << "from the disk";
  EXPECT_TRUE(eventually([&] { return was_told("f"); }));
  remote_.fail_with(std::nullopt);
  EXPECT_TRUE(catalog.wait_synced(Deadline::after(kPatience)));
  EXPECT_TRUE(catalog.find("g"));
  EXPECT_FALSE(catalog.find("goes"));
  EXPECT_EQ(counted("catalog.resets"), resets);
}

TEST_F(FollowTest, AScopeThatReturnsWithTheNextDaemonCostsNoSnapshotEither) {
  remote_.set("aa", elsewhere("f", "1"));
  remote_.set("bb", elsewhere("b/f", "2"));
  start_synced();
  close();
  options_.scopes = {"bb"};
  EXPECT_FALSE(start_synced().find("f"));
  close();
  options_.scopes = {"aa", "bb"};
  const uint64_t resets = counted("catalog.resets");
  EXPECT_TRUE(open().find("f"));
  EXPECT_TRUE(catalog_->find("b/f"));
  start_synced();
  EXPECT_EQ(counted("catalog.resets"), resets);
}

TEST_F(FollowTest, TheScopesThatWereFollowedLongestAgoAreForgotten) {
  Catalog& catalog = start_synced();
  constexpr size_t kMore = 3;
  const size_t all = DiskWriter::kScopesKept + kMore + 1;  // the last one is still followed
  for (size_t i = 0; i < all; ++i) {
    const remote::ScopeId scope = "scope" + std::to_string(i);
    remote_.set(scope, elsewhere("f", std::to_string(i)));
    catalog.follow({scope});
    ASSERT_TRUE(catalog.wait_synced(Deadline::after(kPatience)));
    ASSERT_EQ(catalog.find("f")->entry.digest, codec::digest_of(std::to_string(i)));
  }
  // "aa" and "bb" of the start too.
  EXPECT_TRUE(eventually([&] { return counted("catalog.scopes_forgotten") == kMore + 2; }));
  close();
  auto database = Database::open(options_.file, *Database::lock(options_.file));
  ASSERT_TRUE(database);
  for (size_t i = 0; i < all; ++i) {
    EXPECT_EQ(*database->count_entries("scope" + std::to_string(i), 9), i < kMore ? 0U : 1U) << i;
  }
}

TEST_F(FollowTest, WhatIsKeptOfOldScopesIsNoMoreThanMayBeInMemory) {
  options_.entry_limit = 10;
  const auto fill = [&](const remote::ScopeId& scope, int entries) {
    for (int i = 0; i < entries; ++i) remote_.set(scope, elsewhere("f" + std::to_string(i), scope));
  };
  fill("aa", 6);
  fill("cc", 6);
  fill("dd", 4);
  Catalog& catalog = start_synced();
  for (const char* scope : {"cc", "dd", "ee"}) {
    catalog.follow({scope});
    ASSERT_TRUE(catalog.wait_synced(Deadline::after(kPatience)));
  }
  EXPECT_TRUE(eventually([&] { return counted("catalog.scopes_forgotten") >= 1; }));
  expect_on_disk("aa", 0);
  auto database = Database::open(options_.file, *Database::lock(options_.file));
  ASSERT_TRUE(database);
  EXPECT_EQ(*database->count_entries("cc", 100), 6U);
  EXPECT_EQ(*database->count_entries("dd", 100), 4U);
}

TEST_F(FollowTest, WhatIsQueuedForAnOldScopeIsStillPublished) {
  Catalog& catalog = start_synced();
  remote_.fail_with(Error(ErrorCode::kUnavailable, "down"));
  Publish first{Publish::Kind::kFirst, "aa", {stored("key/f", "1")}, "key", {}};
  Publish candidate{Publish::Kind::kCandidate, "aa", {stored("key2/f", "2")}, "key2", {}};
  ASSERT_TRUE(catalog.enqueue(plain("f", "bytes")));
  ASSERT_TRUE(catalog.enqueue(first));
  ASSERT_TRUE(catalog.enqueue(candidate));
  catalog.follow({"bb"});
  remote_.fail_with(std::nullopt);
  ASSERT_TRUE(catalog.drain(Deadline::after(kPatience)));
  EXPECT_EQ(remote_.published(), (std::vector<std::string>{"f", "key/f", "key2/f"}));
  for (const auto& report : reports()) EXPECT_EQ(report.state, PublishState::kPublished) << report.why;
  EXPECT_FALSE(catalog.find("f")) << "it is none of this host's any more";
  catalog.follow({"aa"});
  EXPECT_TRUE(eventually([&] { return catalog.find("f") && catalog.find("key2/f"); }));
}

TEST_F(FollowTest, TwoScopesWithOnePathAreSeenInTheSameOrderAlways) {
  for (const auto& order : {Scopes{"aa", "cc"}, Scopes{"cc", "aa"}}) {
    options_.file = directory_ / ("catalog-" + order.front() + "/index.db");
    options_.scopes = {order.front()};
    for (const auto& scope : order) remote_.set(scope, elsewhere("f", scope));
    Catalog& catalog = start_synced();
    catalog.follow({"cc", "aa"});
    ASSERT_TRUE(catalog.wait_synced(Deadline::after(kPatience)));
    EXPECT_EQ(catalog.find("f")->scope, "aa");
    EXPECT_EQ(catalog.find("f")->entry.digest, codec::digest_of("aa"));
    remote_.set("cc", elsewhere("f", "newer"));
    remote_.set("cc", elsewhere("mark", order.front()));
    ASSERT_TRUE(eventually([&] { return catalog.find("mark").has_value(); }));
    EXPECT_EQ(catalog.find("f")->scope, "aa") << "the last word of another scope is none of its own";
    remote_.remove("aa", "f");
    EXPECT_TRUE(eventually([&] { return catalog.find("f")->scope == "cc"; }));
    EXPECT_EQ(catalog.find("f")->entry.digest, codec::digest_of("newer"));
    remote_.set("aa", elsewhere("f", "back"));
    EXPECT_TRUE(eventually([&] { return catalog.find("f")->scope == "aa"; }));
    catalog.follow({"cc"});
    EXPECT_EQ(catalog.find("f")->scope, "cc");
    close();
    remote_.state.with([](FakeRemote::State& now) { now.scopes.clear(); });
  }
}

TEST_F(FollowTest, WhatIsHiddenStaysSoInEveryScope) {
  remote_.set("aa", elsewhere("f", "1"));
  remote_.set("cc", elsewhere("f", "2"));
  options_.scopes = {"aa", "cc"};
  Catalog& catalog = start_synced();
  catalog.hide("f");
  EXPECT_FALSE(catalog.find("f"));
  catalog.follow({"cc"});
  EXPECT_FALSE(catalog.find("f"));
  catalog.follow({"aa"});
  ASSERT_TRUE(catalog.wait_synced(Deadline::after(kPatience)));
  EXPECT_FALSE(catalog.find("f"));
  EXPECT_EQ(catalog.status().hidden, 1U);
}

TEST_F(FollowTest, WhatTheNewFactsRefusedOfAnOldScopeComesWhenTheyReturn) {
  std::atomic<bool> accepting = true;
  auto opened = Catalog::open(
      options_, remote_, remote_, store_,
      [&](const remote::ScopeId& scope, std::string_view path) { return accepting && accepts(scope, path); },
      counters_);
  ASSERT_TRUE(opened);
  catalog_ = std::move(*opened);
  catalog_->start({}, {});
  ASSERT_TRUE(catalog_->wait_synced(Deadline::after(kPatience)));
  // The facts change first, then the daemon calls follow(): what comes in between is refused.
  accepting = false;
  remote_.set("aa", elsewhere("f", "1"));
  EXPECT_TRUE(eventually([&] { return counted("catalog.rejected") == 1; }));
  catalog_->follow({"bb"});
  accepting = true;
  catalog_->follow({"aa", "bb"});
  EXPECT_TRUE(eventually([&] { return catalog_->find("f").has_value(); }));
}

TEST_F(FollowTest, BeforeTheStartAndAfterTheEndItOnlyChangesTheView) {
  remote_.set("aa", elsewhere("f", "1"));
  remote_.set("cc", elsewhere("g", "1"));
  start_synced();
  Catalog& catalog = open();
  EXPECT_TRUE(catalog.find("f"));
  catalog.follow({"cc"});
  EXPECT_FALSE(catalog.find("f"));
  catalog.start({}, {});
  EXPECT_TRUE(eventually([&] { return catalog.find("g").has_value(); }));
  catalog.stop();
  catalog.follow({"aa"});
  EXPECT_FALSE(catalog.find("g"));
}

}  // namespace
}  // namespace inductorfs::catalog
