// SPDX-License-Identifier: Apache-2.0
#include "catalog/tail.h"

#include "catalog/catalog_fixture.h"
#include "remote/forwarding_remote.h"

namespace inductorfs::catalog {
namespace {

using TailTest = CatalogFixture;

TEST_F(TailTest, SeesWhatIsThereAndWhatComesAndWhatGoes) {
  remote_.set("aa", elsewhere("d/one", "1"));
  Catalog& catalog = start_synced();
  EXPECT_TRUE(catalog.find("d/one"));
  remote_.set("bb", elsewhere("b/two", "2"));
  EXPECT_TRUE(eventually([&] { return catalog.find("b/two").has_value(); }));
  EXPECT_EQ(catalog.find("b/two")->scope, "bb");
  remote_.remove("aa", "d/one");
  EXPECT_TRUE(eventually([&] { return !catalog.has_directory("d"); }));
  EXPECT_TRUE(eventually([&] { return changed().size() == 3; }));
  EXPECT_EQ(changed(), (std::vector<std::string>{"d/one", "b/two", "d/one"}));
}

TEST_F(TailTest, ListenersAreToldAfterTheChangeCanBeSeen) {
  Catalog& catalog = open();
  std::atomic<bool> seen{false};
  std::atomic<bool> called{false};
  catalog.start(
      [&](const std::vector<std::string>& paths) {
        seen = catalog.find(paths.front()).has_value();
        called = true;
      },
      {});
  remote_.set("aa", elsewhere("f", "1"));
  EXPECT_TRUE(eventually([&] { return called.load(); }));
  EXPECT_TRUE(seen);
  catalog.stop();
}

TEST_F(TailTest, ContinuesWhereItWasAfterARestart) {
  remote_.set("aa", elsewhere("f", "1"));
  start_synced();
  close();
  remote_.set("aa", elsewhere("g", "2"));
  const uint64_t resets = counted("catalog.resets");
  remote_.fail_with(Error(ErrorCode::kUnavailable, "down"));
  Catalog& offline = start();
  EXPECT_TRUE(offline.find("f")) << "known from the disk, without the cluster";
  EXPECT_FALSE(offline.status().synced);
  EXPECT_FALSE(offline.wait_synced(Deadline::after(Milliseconds(1))));
  remote_.fail_with(std::nullopt);
  EXPECT_TRUE(offline.wait_synced(Deadline::after(kPatience)));
  EXPECT_TRUE(offline.find("g"));
  EXPECT_EQ(counted("catalog.resets"), resets) << "the tail was enough";
}

TEST_F(TailTest, ReadsAllAgainForWhoAsksAndSaysWhenItCannot) {
  remote_.set("aa", elsewhere("f", "1"));
  Catalog& catalog = start_synced();
  EXPECT_TRUE(catalog.wait_read_again(catalog.read_again(), Deadline::after(kPatience)));
  remote_.fail_with(Error(ErrorCode::kUnavailable, "down"));
  const uint64_t ticket = catalog.read_again();
  const auto told = catalog.wait_read_again(ticket, Deadline::after(Milliseconds(100)));
  ASSERT_FALSE(told);
  EXPECT_EQ(told.error().code(), ErrorCode::kTimedOut);
  remote_.fail_with(std::nullopt);
  EXPECT_TRUE(catalog.wait_read_again(ticket, Deadline::after(kPatience))) << "the same question is answered late";
}

TEST_F(TailTest, ALossIsKnownToTheNextWorkerThoughNobodyHasActedOnIt) {
  remote_.set("aa", elsewhere("f", "1"));
  Catalog& catalog = start_synced();
  catalog.note_queue(true);
  remote_.script("aa", {true, {elsewhere("g", "2")}, {}, {7, "of another history"}, true});
  EXPECT_TRUE(catalog.wait_read_again(catalog.read_again(), Deadline::after(kPatience)));
  EXPECT_EQ(catalog.lost_tails(), 1U);
  close();
  EXPECT_TRUE(open().queue_may_be_short());
}

/// No position tells of it: the scope has none before its first record is read.
TEST_F(TailTest, WhatWasLostBeforeItWasReadBackIsALossToo) {
  options_.poll_interval = Milliseconds(60'000);
  const remote::Delta empty{true, {}, {}, {}, true};  // as Redis says of a scope that nobody has published in
  remote_.script("aa", empty);
  Catalog& catalog = start_synced();
  EXPECT_EQ(publish(plain("f", "1")).state, PublishState::kPublished);
  remote_.state.with([](FakeRemote::State& now) { now.scopes.clear(); });
  remote_.script("aa", empty);
  EXPECT_TRUE(catalog.wait_read_again(catalog.read_again(), Deadline::after(kPatience)));
  EXPECT_EQ(catalog.lost_tails(), 1U);
  EXPECT_FALSE(catalog.find("f"));
}

/// The server is just where this host had read to: no history tells of it either.
TEST_F(TailTest, WhatWasLostJustBeyondWhatWasReadIsALossToo) {
  options_.poll_interval = Milliseconds(60'000);
  remote_.set("aa", elsewhere("g", "2"));
  Catalog& catalog = start_synced();
  EXPECT_EQ(publish(plain("f", "1")).state, PublishState::kPublished);
  remote_.state.with([](FakeRemote::State& now) {
    now.scopes["aa"].log.pop_back();
    now.scopes["aa"].entries.erase("f");
  });
  EXPECT_TRUE(catalog.wait_read_again(catalog.read_again(), Deadline::after(kPatience)));
  EXPECT_EQ(catalog.lost_tails(), 1U);
  EXPECT_FALSE(catalog.find("f"));
  EXPECT_TRUE(catalog.find("g"));
}

TEST_F(TailTest, WhatTheClusterHadBeforeLeavesNoDoubt) {
  options_.poll_interval = Milliseconds(60'000);
  Catalog& catalog = start_synced();
  EXPECT_EQ(publish(plain("f", "1")).state, PublishState::kPublished);
  EXPECT_TRUE(catalog.wait_read_again(catalog.read_again(), Deadline::after(kPatience)));
  const uint64_t resets = counted("catalog.resets");
  EXPECT_EQ(publish(plain("f", "1")).state, PublishState::kPublished) << "nothing was sent";
  EXPECT_TRUE(catalog.wait_read_again(catalog.read_again(), Deadline::after(kPatience)));
  EXPECT_EQ(counted("catalog.resets"), resets) << "nothing was read as a whole";
  EXPECT_EQ(catalog.lost_tails(), 0U);
}

/// Nobody can tell the next worker whether the server still had it.
TEST_F(TailTest, WhatWasNotReadBackMakesTheQueueShortForTheNextWorker) {
  options_.poll_interval = Milliseconds(60'000);
  Catalog& catalog = start_synced();
  catalog.note_queue(true);
  EXPECT_EQ(publish(plain("f", "1")).state, PublishState::kPublished);
  catalog.note_queue(true);
  close();
  EXPECT_TRUE(open().queue_may_be_short());
}

/// Else each worker would look at all that the cluster has swept or refused, after each upgrade.
TEST_F(TailTest, WhatWasReadBackLeavesTheQueueWholeForTheNextWorker) {
  options_.poll_interval = Milliseconds(60'000);
  Catalog& catalog = start_synced();
  catalog.note_queue(true);
  for (const char* bytes : {"1", "2"}) {
    EXPECT_EQ(publish(plain("f", bytes)).state, PublishState::kPublished);
    EXPECT_TRUE(catalog.queue_may_be_short());
    EXPECT_TRUE(catalog.wait_read_again(catalog.read_again(), Deadline::after(kPatience)));
    EXPECT_TRUE(eventually([&] { return !catalog.queue_may_be_short(); })) << bytes;
  }
  close();
  EXPECT_FALSE(open().queue_may_be_short());
}

TEST_F(TailTest, WhatWasReadBackMakesNoQueueWholeThatWasShortBefore) {
  options_.poll_interval = Milliseconds(60'000);
  Catalog& catalog = start_synced();
  catalog.note_queue(false);
  EXPECT_EQ(publish(plain("f", "1")).state, PublishState::kPublished);
  EXPECT_TRUE(catalog.wait_read_again(catalog.read_again(), Deadline::after(kPatience)));
  close();
  EXPECT_TRUE(open().queue_may_be_short());
}

TEST_F(TailTest, WhatIsReadBackForTheFirstTimeIsNoLoss) {
  options_.poll_interval = Milliseconds(60'000);
  remote_.set("aa", elsewhere("g", "2"));
  Catalog& catalog = start_synced();
  EXPECT_EQ(publish(plain("f", "1")).state, PublishState::kPublished);
  EXPECT_EQ(publish({Publish::Kind::kPlain, "bb", {stored("b/f", "1")}, {}, {}}).state, PublishState::kPublished);
  EXPECT_TRUE(catalog.wait_read_again(catalog.read_again(), Deadline::after(kPatience)));
  EXPECT_EQ(catalog.lost_tails(), 0U);
  EXPECT_TRUE(catalog.find("f"));
  EXPECT_TRUE(catalog.find("b/f"));
}

TEST_F(TailTest, WhatNobodyCanReadKeepsNobodyWaiting) {
  Catalog& catalog = start_synced();
  remote_.fail_with(Error(ErrorCode::kCorrupt, "somebody's list"));
  EXPECT_TRUE(catalog.wait_read_again(catalog.read_again(), Deadline::after(kPatience)));
}

TEST_F(TailTest, ASnapshotReplacesWhatWasKnownOfItsScopeOnly) {
  remote_.set("aa", elsewhere("stays", "1"));
  remote_.set("aa", elsewhere("goes", "2"));
  remote_.set("bb", elsewhere("b/other", "3"));
  start_synced();
  close();
  remote_.remove("aa", "goes");
  remote_.set("aa", elsewhere("comes", "4"));
  remote_.trim("aa");
  told_.with([](Told& told) { told.changed.clear(); });
  Catalog& catalog = start_synced();
  EXPECT_TRUE(catalog.find("stays"));
  EXPECT_TRUE(catalog.find("comes"));
  EXPECT_TRUE(catalog.find("b/other"));
  EXPECT_FALSE(catalog.find("goes"));
  EXPECT_FALSE(was_told("stays")) << "nothing changed about it";
  EXPECT_TRUE(was_told("goes"));
  close();
  remote_.fail_with(Error(ErrorCode::kUnavailable, "down"));
  Catalog& offline = open();
  EXPECT_TRUE(offline.find("comes"));
  EXPECT_FALSE(offline.find("goes")) << "gone on the disk too";
}

TEST_F(TailTest, AClusterThatWasEmptiedEmptiesTheCatalogEvenWithoutAPosition) {
  remote_.set("aa", elsewhere("f", "1"));
  start_synced();
  close();
  {  // as after an upgrade of this program
    auto database = Database::open(options_.file, *Database::lock(options_.file));
    ASSERT_TRUE(database);
    ASSERT_TRUE(database->note_release("another release"));
  }
  remote_.state.with([](FakeRemote::State& now) { now.scopes.clear(); });
  EXPECT_TRUE(open().find("f")) << "until the cluster has been asked";
  EXPECT_FALSE(start_synced().find("f"));
  EXPECT_EQ(catalog_->lost_tails(), 1U) << "what this host has made of it is to be published again";
}

TEST_F(TailTest, AnEmptySnapshotThatComesEachTimeIsTheEndToo) {
  for (int i = 0; i < 100; ++i) remote_.script("aa", remote::Delta{true, {}, {}, {}});
  Catalog& catalog = start_synced();
  EXPECT_LE(counted("catalog.resets"), 2U);
  EXPECT_TRUE(eventually(
      [&] { return remote_.state.with([](FakeRemote::State& now) { return now.scopes["aa"].scripted.empty(); }); }));
  remote_.set("aa", elsewhere("f", "1"));
  EXPECT_TRUE(eventually([&] { return catalog.find("f").has_value(); }));
}

TEST_F(TailTest, WithoutScopesItIsSyncedAtOnce) {
  options_.scopes.clear();
  Catalog& catalog = start();
  EXPECT_TRUE(catalog.wait_synced(Deadline::after(kPatience)));
}

TEST_F(TailTest, DropsAndCountsWhatDoesNotBelongToTheScope) {
  remote::Delta hostile{false, {}, {}, {1, "nonce-1"}};
  for (const char* path : {"b/of the other scope", "../../etc/passwd", "a//b", "", "/abs", "a/./b"}) {
    hostile.set.push_back(elsewhere(path, "x"));
  }
  hostile.set.push_back(elsewhere(std::string(codec::kPathLimit + 1, 'x'), "x"));
  hostile.set.push_back(elsewhere("good", "x"));
  hostile.set.push_back(elsewhere("good/but a file is there", "x"));
  hostile.removed = {"never known", "../..", ""};
  remote_.script("aa", hostile);
  Catalog& catalog = start();
  EXPECT_TRUE(eventually([&] { return catalog.find("good").has_value(); }));
  EXPECT_TRUE(eventually([&] { return counted("catalog.rejected") == 8; }));
  EXPECT_EQ(catalog.list("").size(), 1U);
}

TEST_F(TailTest, OneScopeThatFailsDoesNotStopTheOthers) {
  struct Picky final : remote::ForwardingIndex {
    using ForwardingIndex::ForwardingIndex;
    Result<remote::Delta> read_changes(const remote::ScopeId& scope, const remote::Position& from,
                                       Deadline deadline) override {
      if (scope == "aa") return fail(ErrorCode::kTooLarge, "over the index limit");
      return inner().read_changes(scope, from, deadline);
    }
  } picky(remote::lent<remote::Index>(remote_));
  auto catalog = Catalog::open(options_, remote_, picky, store_, accepts, counters_);
  ASSERT_TRUE(catalog);
  (*catalog)->start({}, {});
  for (int i = 0; i < 3; ++i) {
    const std::string path = "b/" + std::to_string(i);
    remote_.set("bb", elsewhere(path, "1"));
    EXPECT_TRUE(eventually([&] { return (*catalog)->find(path).has_value(); }));
  }
  EXPECT_GE(counted("tail.errors"), 1U);
  EXPECT_FALSE((*catalog)->status().synced);
}

TEST_F(TailTest, SaysWhichScopesCannotBeReadAlthoughTheServerAnswers) {
  Catalog& catalog = start_synced();
  remote_.fail_with(Error(ErrorCode::kUnavailable, "away"));
  remote_.set("aa", elsewhere("f", "1"));
  ASSERT_TRUE(eventually([&] { return counted("tail.errors") > 0; }));
  EXPECT_TRUE(catalog.status().unread.empty()) << "that is said of the server";
  remote_.fail_with(Error(ErrorCode::kCorrupt, "its scan does not end"));
  ASSERT_TRUE(eventually([&] { return catalog.status().unread.contains("aa"); }));
  EXPECT_NE(catalog.status().unread.at("aa").find("its scan does not end"), std::string::npos);
  remote_.fail_with(std::nullopt);
  EXPECT_TRUE(eventually([&] { return catalog.status().unread.empty() && catalog.find("f"); }));
}

TEST_F(TailTest, ReadsOnlyTheScopesThatHaveSomething) {
  Catalog& catalog = start_synced();
  const auto reads = [&] { return remote_.state.with([](const FakeRemote::State& now) { return now.reads; }); };
  const uint64_t before = reads();
  constexpr uint64_t kChanges = 30;
  for (uint64_t i = 0; i < kChanges; ++i) {
    const std::string path = "f" + std::to_string(i);
    remote_.set("aa", elsewhere(path, "1"));
    ASSERT_TRUE(eventually([&] { return catalog.find(path).has_value(); }));
  }
  // Each is a read that has it and one that finds no more; the other scope has none.
  EXPECT_LE(reads() - before, 2 * kChanges);
}

TEST_F(TailTest, AScopeThatIsNamedInVainIsReadLikeAQuietOne) {
  options_.poll_interval = Milliseconds(10);
  Catalog& catalog = start_synced();
  const auto reads = [&] { return remote_.state.with([](FakeRemote::State& now) { return now.reads_of["aa"]; }); };
  remote_.state.with([](FakeRemote::State& now) { now.named_in_vain = "aa"; });
  const uint64_t before = reads();
  for (int i = 0; i < 30; ++i) {  // at least as many turns
    const std::string path = "b/" + std::to_string(i);
    remote_.set("bb", elsewhere(path, "1"));
    ASSERT_TRUE(eventually([&] { return catalog.find(path).has_value(); }));
  }
  EXPECT_LE(reads() - before, 6U);
}

TEST_F(TailTest, ChangesThatComeAllTheTimeAreReadAtThePollInterval) {
  options_.poll_interval = Milliseconds(50);
  Catalog& catalog = start_synced();
  const auto begin = std::chrono::steady_clock::now();
  const uint64_t before = remote_.state.with([](const FakeRemote::State& now) { return now.reads; });
  for (int i = 0; i < 200; ++i) {
    remote_.set("aa", elsewhere("f" + std::to_string(i), "1"));
    const auto next = std::chrono::steady_clock::now() + Milliseconds(1);
    remote_.state.wait_until(
        next, [](const auto&) { return false; }, [](const auto&) {});
  }
  EXPECT_TRUE(eventually([&] { return catalog.find("f199").has_value(); }));
  const auto turns = (std::chrono::steady_clock::now() - begin) / Milliseconds(50) + 2;
  const uint64_t reads = remote_.state.with([](const FakeRemote::State& now) { return now.reads; }) - before;
  // In each turn one empty read per scope, and one read for each of the 200 records.
  EXPECT_LE(reads, 200U + 2U * static_cast<uint64_t>(turns));
}

TEST_F(TailTest, TellsASnapshotInOrderWhateverItCameIn) {
  remote::Delta snapshot{true, {}, {}, {1, "one"}, true};
  for (int i = 0; i < 2000; ++i)
    snapshot.set.push_back(elsewhere("d" + std::to_string(i * 7 % 2000 / 100) + "/" + std::to_string(i), "1"));
  std::vector<std::string> paths;
  for (const auto& entry : snapshot.set) paths.push_back(entry.path);
  remote_.script("aa", std::move(snapshot));
  start_synced();
  ASSERT_TRUE(
      eventually([&] { return told_.with([&](const Told& told) { return told.changed.size() == paths.size(); }); }));
  ASSERT_FALSE(std::ranges::is_sorted(paths));
  std::ranges::sort(paths);
  EXPECT_EQ(told_.with([](const Told& told) { return told.changed; }), paths) << "each directory once";
}

/// Its waiters ask whether they are cancelled only when they are woken. Safe for concurrent use.
class SoundSleeper final : public remote::ForwardingIndex {
 public:
  using ForwardingIndex::ForwardingIndex;

  Result<std::vector<remote::ScopeId>> wait_for_changes(
      const std::vector<std::pair<remote::ScopeId, remote::Position>>&, Milliseconds,
      const std::function<bool()>& cancelled) override {
    const uint64_t seen = state_.notify_with([](State& state) { return ++state.waits, state.wakes; });
    if (cancelled()) return std::vector<remote::ScopeId>();
    const bool woken = state_.wait_until(
        Deadline::after(kPatience).at(), [&](const State& state) { return state.wakes != seen; },
        [&](const State& state) { return state.wakes != seen; });
    EXPECT_TRUE(woken && cancelled());
    return std::vector<remote::ScopeId>();
  }
  void wake_waiters() override {
    state_.notify_with([](State& state) { ++state.wakes; });
  }
  [[nodiscard]] uint64_t waits() const {
    return state_.with([](const State& state) { return state.waits; });
  }

 private:
  struct State {
    uint64_t waits = 0;
    uint64_t wakes = 0;
  };
  Guarded<State> state_;
};

TEST_F(TailTest, WakesItsWaitWhenOtherScopesAreWantedAndAtTheEnd) {
  SoundSleeper sleeper(remote::lent<remote::Index>(remote_));
  auto catalog = Catalog::open(options_, remote_, sleeper, store_, accepts, counters_);
  ASSERT_TRUE(catalog);
  (*catalog)->start({}, {});
  ASSERT_TRUE(eventually([&] { return sleeper.waits() == 1; }));
  remote_.set("cc", elsewhere("f", "1"));
  (*catalog)->follow({"cc"});
  EXPECT_TRUE(eventually([&] { return (*catalog)->find("f").has_value(); }));
  ASSERT_TRUE(eventually([&] { return sleeper.waits() == 2; }));
  (*catalog)->stop();
}

}  // namespace
}  // namespace inductorfs::catalog
