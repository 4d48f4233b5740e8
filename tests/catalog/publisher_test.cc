// SPDX-License-Identifier: Apache-2.0
#include "catalog/publisher.h"

#include "catalog/catalog_fixture.h"

namespace inductorfs::catalog {
namespace {

class PublisherTest : public CatalogFixture {
 protected:
  Publish group(Publish::Kind kind, const std::string& path, const std::string& bytes) {
    Publish publish = plain(path, bytes);
    publish.kind = kind;
    publish.contest = "key";
    return publish;
  }
};

TEST_F(PublisherTest, PublishedBytesAreTheStoresAndKnownHereAtOnce) {
  Catalog& catalog = start_synced();
  const std::string bytes(300'000, 'z');
  const auto report = publish(plain("d/f", bytes));
  EXPECT_EQ(report.state, PublishState::kPublished);
  EXPECT_EQ(report.paths, (std::vector<std::string>{"d/f"}));
  ASSERT_TRUE(catalog.find("d/f"));
  EXPECT_EQ(catalog.find("d/f")->entry.origin, "host/mount");
  EXPECT_EQ(remote_.bytes(codec::digest_of(bytes)), bytes);
  EXPECT_EQ(catalog.publish_state("d/f")->state, PublishState::kPublished);
  EXPECT_FALSE(catalog.publish_state("unheard of"));
  EXPECT_EQ(counted("publish.published"), 1U);
  EXPECT_TRUE(was_told("d/f"));
}

TEST_F(PublisherTest, AGroupGoesAsOne) {
  start_synced();
  Publish group = plain("k/a", "1");
  group.entries.push_back(stored("k/b", "2"));
  EXPECT_EQ(publish(group).paths, (std::vector<std::string>{"k/a", "k/b"}));
  const auto published = remote_.state.with([](const FakeRemote::State& now) { return now.published; });
  ASSERT_EQ(published.size(), 1U);
  EXPECT_EQ(published[0].entries.size(), 2U);
}

TEST_F(PublisherTest, TheFirstGroupOfAKeyWins) {
  start_synced();
  EXPECT_EQ(publish(group(Publish::Kind::kFirst, "key/a", "1")).state, PublishState::kPublished);
  const auto second = publish(group(Publish::Kind::kFirst, "key/b", "2"));
  EXPECT_EQ(second.state, PublishState::kKeptLocal);
  EXPECT_NE(second.why.find("superseded"), std::string::npos);
  EXPECT_FALSE(remote_.entry("aa", "key/b"));
  EXPECT_EQ(counted("publish.kept_local"), 1U);
  EXPECT_EQ(counted("publish.superseded"), 1U);
}

TEST_F(PublisherTest, ALookPastTheTailEndsAtTheHead) {
  start_synced();
  for (const char* text : {"1", "2"}) {
    Publish ours = group(Publish::Kind::kFirst, std::string("key/") + text, text);
    ours.scope = "zz";  // which nobody follows: what is read of it is read for this contest
    (void)publish(ours);
  }
  EXPECT_EQ(remote_.state.with([](FakeRemote::State& now) { return now.reads_of["zz"]; }), 1U);
}

TEST_F(PublisherTest, AContestThatIsKnownToBeLostCostsNoBytes) {
  remote_.set("aa", elsewhere("key/a", "theirs"));
  start_synced();
  EXPECT_EQ(publish(group(Publish::Kind::kFirst, "key/a", "ours")).state, PublishState::kKeptLocal);
  EXPECT_EQ(remote_.state.with([](const FakeRemote::State& now) { return now.publishes; }), 0U);
}

TEST_F(PublisherTest, LosingAgainstAnEarlierAttemptOfItsOwnIsWinning) {
  start_synced();
  remote_.state.with([](FakeRemote::State& now) { now.lost_answer = Error(ErrorCode::kTimedOut, "no answer"); });
  EXPECT_EQ(publish(group(Publish::Kind::kFirst, "key/a", "1")).state, PublishState::kPublished);
  EXPECT_EQ(counted("publish.retries"), 1U);
  EXPECT_EQ(remote_.published().size(), 1U);
}

TEST_F(PublisherTest, TheFirstOfAPathStaysAndTheOtherIsKeptHere) {
  Catalog& catalog = start_synced();
  remote_.set("aa", elsewhere("f", "theirs"));
  const auto second = publish(group(Publish::Kind::kFirstOfPath, "f", "ours"));
  EXPECT_EQ(second.state, PublishState::kKeptLocal);
  EXPECT_NE(second.why.find("superseded"), std::string::npos);
  EXPECT_EQ(remote_.entry("aa", "f")->origin, "other/mount");
  EXPECT_TRUE(eventually([&] { return catalog.find("f") && catalog.find("f")->entry.origin == "other/mount"; }));
}

TEST_F(PublisherTest, WhatANewerReleaseHasPublishedStaysAndTheFileIsKeptHere) {
  Catalog& catalog = start_synced();
  remote_.state.with([](FakeRemote::State& now) { now.newer.insert("f"); });
  using Kind = Publish::Kind;
  uint64_t superseded = 0;
  for (const Kind kind : {Kind::kPlain, Kind::kFirst, Kind::kCandidate, Kind::kMerge, Kind::kFirstOfPath}) {
    const auto report = publish(group(kind, "f", "ours"));
    EXPECT_EQ(report.state, PublishState::kKeptLocal) << static_cast<int>(kind);
    EXPECT_NE(report.why.find("upgrade this mount"), std::string::npos) << report.why;
    EXPECT_EQ(counted("publish.superseded"), ++superseded) << static_cast<int>(kind);
  }
  EXPECT_FALSE(catalog.find("f"));
  EXPECT_TRUE(remote_.published().empty());
}

TEST_F(PublisherTest, WhoDeletedTheFirstOfAPathReplacesIt) {
  Catalog& catalog = start_synced();
  remote_.set("aa", elsewhere("f", "theirs"));
  ASSERT_TRUE(eventually([&] { return catalog.find("f").has_value(); }));
  catalog.hide("f");
  EXPECT_EQ(publish(group(Publish::Kind::kFirstOfPath, "f", "ours")).state, PublishState::kPublished);
  EXPECT_EQ(remote_.entry("aa", "f")->origin, "host/mount");
}

TEST_F(PublisherTest, WhatTheClusterHasAlreadyKeepsItsAttributesHereToo) {
  Catalog& catalog = start_synced();
  remote_.set("aa", elsewhere("f", "same"));
  ASSERT_TRUE(eventually([&] { return catalog.find("f").has_value(); }));
  EXPECT_EQ(publish(plain("f", "same")).state, PublishState::kPublished);
  EXPECT_EQ(catalog.find("f")->entry, *remote_.entry("aa", "f"));
  EXPECT_TRUE(remote_.published().empty()) << "nothing to tell anybody";
}

TEST_F(PublisherTest, WhatAnotherHostSendsJustNowIsPutOffAndTheOthersGoOn) {
  Catalog& catalog = open();
  remote_.state.with([](FakeRemote::State& now) { now.claimed = 1; });
  ASSERT_TRUE(catalog.enqueue(plain("first", "1")));
  ASSERT_TRUE(catalog.enqueue(plain("second", "2")));  // before the first one can be tried again
  catalog.start({}, {});
  ASSERT_TRUE(catalog.drain(Deadline::after(kPatience)));
  EXPECT_EQ(remote_.published(), (std::vector<std::string>{"second", "first"}));
  EXPECT_EQ(counted("publish.retries"), 0U) << "nobody's fault";
  EXPECT_EQ(catalog.publish_state("first")->state, PublishState::kPublished);
}

TEST_F(PublisherTest, ACandidateMadeWithoutSeeingTheOthersStaysLocal) {
  remote_.set("aa", elsewhere("key/theirs", "1"));
  start_synced();
  const auto report = publish(group(Publish::Kind::kCandidate, "key/ours", "2"));
  EXPECT_EQ(report.state, PublishState::kKeptLocal);
  EXPECT_FALSE(remote_.entry("aa", "key/ours"));
}

TEST_F(PublisherTest, ACandidateWhoseWriterSawTheOthersIsPublished) {
  remote_.set("aa", elsewhere("key/theirs", "1"));
  remote_.state.with([](FakeRemote::State& now) { now.scopes["aa"].groups["key"] = 1; });
  start_synced();
  Publish ours = group(Publish::Kind::kCandidate, "key/ours", "2");
  ours.seen = {"key/theirs"};
  EXPECT_EQ(publish(ours).state, PublishState::kPublished);
  // Another node, which saw both.
  Publish third = group(Publish::Kind::kCandidate, "key/third", "3");
  third.seen = {"key/theirs", "key/ours"};
  EXPECT_EQ(publish(third).state, PublishState::kPublished);
}

TEST_F(PublisherTest, AHiddenCandidateCountsAsUnseenToo) {
  remote_.set("aa", elsewhere("key/theirs", "1"));
  start_synced().hide("key/theirs");
  EXPECT_EQ(publish(group(Publish::Kind::kCandidate, "key/ours", "2")).state, PublishState::kKeptLocal);
}

TEST_F(PublisherTest, ALostCandidateStandsInNobodysWay) {
  remote_.set("aa", elsewhere("key/theirs", "1"), "key");
  Catalog& catalog = start_synced();
  catalog.report_lost(*catalog.find("key/theirs"));
  EXPECT_EQ(publish(group(Publish::Kind::kCandidate, "key/ours", "2")).state, PublishState::kPublished);
}

TEST_F(PublisherTest, TheServerStopsACandidateThatTheTailHasNotShownYet) {
  start_synced();
  remote_.state.with([](FakeRemote::State& now) { now.scopes["aa"].groups["key"] = 1; });
  EXPECT_EQ(publish(group(Publish::Kind::kCandidate, "key/ours", "2")).state, PublishState::kKeptLocal);
}

TEST_F(PublisherTest, AKeyHasNoMoreThanItsLimitOfCandidates) {
  options_.candidates_per_key = 3;
  Publish ours = group(Publish::Kind::kCandidate, "key/ours", "x");
  for (int i = 0; i < 3; ++i) {
    const std::string path = "key/" + std::to_string(i);
    remote_.set("aa", elsewhere(path, "1"), "key");
    ours.seen.push_back(path);
  }
  start_synced();
  const auto report = publish(ours);
  EXPECT_EQ(report.state, PublishState::kKeptLocal);
  EXPECT_NE(report.why.find("3 candidates"), std::string::npos);
}

TEST_F(PublisherTest, TooLargeStaysLocalAndSaysSo) {
  options_.artefact_limit = 10;
  start_synced();
  const auto report = publish(plain("f", "eleven bytes"));
  EXPECT_EQ(report.state, PublishState::kKeptLocal);
  EXPECT_NE(report.why.find("more than the limit of 10"), std::string::npos);
  EXPECT_EQ(counted("publish.kept_local"), 1U);
  EXPECT_EQ(counted("publish.superseded"), 0U);
}

/// A full disk did not take that it was published, and then evicted the blob.
TEST_F(PublisherTest, ABlobThatIsGoneAndInTheClusterIsPublished) {
  Publish done = plain("f", "bytes");
  remote_.set("aa", elsewhere("f", "bytes"));
  start_synced();
  store_.discard(done.entries[0].digest);
  EXPECT_EQ(publish(done).state, PublishState::kPublished);
  EXPECT_EQ(counted("publish.damaged"), 0U);
}

TEST_F(PublisherTest, ABlobThatIsGoneIsToldAsDamage) {
  Catalog& catalog = start_synced();
  catalog.note_queue(true);
  Publish lost = plain("f", "bytes");
  store_.discard(lost.entries[0].digest);
  const auto report = publish(lost);
  EXPECT_EQ(report.state, PublishState::kKeptLocal);
  EXPECT_TRUE(report.damaged);
  EXPECT_NE(report.why.find("no longer in the store"), std::string::npos);
  EXPECT_EQ(counted("publish.damaged"), 1U);
  EXPECT_EQ(counted("publish.refused"), 0U) << "the cluster was not asked";
  EXPECT_TRUE(catalog.queue_may_be_short()) << "whoever is told may be killed before it is queued again";
}

TEST_F(PublisherTest, ADamagedBlobIsToldAndDiscarded) {
  Catalog& catalog = start_synced();
  const Publish damaged = plain("f", "bytes");
  store_.damage(damaged.entries[0].digest);
  EXPECT_TRUE(publish(damaged).damaged);
  EXPECT_FALSE(store_.find(damaged.entries[0].digest));
  EXPECT_FALSE(catalog.find("f"));
}

TEST_F(PublisherTest, KeepsItsOrderThroughAnOutage) {
  Catalog& catalog = start_synced();
  remote_.fail_with(Error(ErrorCode::kUnavailable, "connection refused"));
  std::vector<std::string> order;
  for (int i = 0; i < 20; ++i) {
    order.push_back("f" + std::to_string(i));
    ASSERT_TRUE(catalog.enqueue(plain(order.back(), "bytes")));
  }
  ASSERT_TRUE(eventually([&] { return counted("publish.retries") > 0; }));
  const auto drained = catalog.drain(Deadline::after(Milliseconds(300)));
  ASSERT_FALSE(drained);
  EXPECT_EQ(drained.error().code(), ErrorCode::kUnavailable);
  EXPECT_NE(drained.error().what().find("20 groups"), std::string::npos) << drained.error().what();
  EXPECT_NE(drained.error().what().find("f0 f1 f2 f3 f4;"), std::string::npos) << drained.error().what();
  EXPECT_NE(drained.error().what().find("connection refused"), std::string::npos);
  EXPECT_EQ(catalog.status().queued, 20U);
  EXPECT_NE(catalog.status().oldest_queued_error.find("connection refused"), std::string::npos);
  EXPECT_LT(remote_.state.with([](const FakeRemote::State& now) { return now.publishes; }), 10U) << "not hot";
  EXPECT_EQ(catalog.publish_state("f7")->state, PublishState::kQueued);

  remote_.fail_with(std::nullopt);
  EXPECT_TRUE(catalog.drain(Deadline::after(kPatience)));
  EXPECT_EQ(remote_.published(), order);
  EXPECT_EQ(catalog.status().queued, 0U);
  EXPECT_TRUE(catalog.status().oldest_queued_error.empty());
}

TEST_F(PublisherTest, DrainOfAClusterThatNeverAnswersTimesOut) {
  Catalog& catalog = start_synced();
  remote_.hang(true);
  ASSERT_TRUE(catalog.enqueue(plain("f", "bytes")));
  const auto drained = catalog.drain(Deadline::after(Milliseconds(50)));
  ASSERT_FALSE(drained);
  EXPECT_EQ(drained.error().code(), ErrorCode::kTimedOut);
  remote_.hang(false);
  EXPECT_TRUE(catalog.drain(Deadline::after(kPatience)));
}

TEST_F(PublisherTest, AnErrorThatIsTheGroupsOwnDoesNotBlockTheQueueForEver) {
  Catalog& catalog = start_synced();
  remote_.fail_with(Error(ErrorCode::kInvalid, "the server does not take this"));
  ASSERT_TRUE(catalog.enqueue(plain("f", "bytes")));
  ASSERT_TRUE(catalog.drain(Deadline::after(kPatience)));
  EXPECT_EQ(catalog.publish_state("f")->state, PublishState::kRefused);
}

TEST_F(PublisherTest, ALaterGroupOfTheSamePathsTakesTheQueuedOnesPlace) {
  Catalog& catalog = open();
  ASSERT_TRUE(catalog.enqueue(plain("f", "old")));
  ASSERT_TRUE(catalog.enqueue(plain("g", "other")));
  ASSERT_TRUE(catalog.enqueue(plain("f", "new")));
  EXPECT_EQ(catalog.status().queued, 2U);
  catalog.start({}, {});
  ASSERT_TRUE(catalog.drain(Deadline::after(kPatience)));
  EXPECT_EQ(remote_.published(), (std::vector<std::string>{"g", "f"}));
  EXPECT_EQ(remote_.entry("aa", "f")->digest, codec::digest_of("new"));
}

TEST_F(PublisherTest, BeyondTheLimitTheOldestIsDroppedAndToldOf) {
  options_.queue_limit = 3;
  Catalog& catalog = open();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(catalog.enqueue(plain("f" + std::to_string(i), "bytes")));
  EXPECT_EQ(catalog.status().queued_paths, (std::vector<std::string>{"f2", "f3", "f4"}));
  EXPECT_EQ(counted("publish.dropped"), 2U);
  EXPECT_EQ(catalog.publish_state("f0")->state, PublishState::kKeptLocal);
  Guarded<std::vector<std::string>> told;
  catalog.start({}, [&](const PublishReport& report) {
    if (report.state != PublishState::kKeptLocal) return;
    told.with([&](auto& paths) { paths.push_back(report.paths.front()); });
  });
  ASSERT_TRUE(catalog.drain(Deadline::after(kPatience)));
  EXPECT_EQ(told.with([](const auto& paths) { return paths; }), (std::vector<std::string>{"f0", "f1"}));
  EXPECT_EQ(remote_.published().size(), 3U);
}

TEST_F(PublisherTest, AnOwnEntryNeverCoversANewerOneOfTheCluster) {
  Catalog& catalog = start_synced();
  remote_.state.with([](FakeRemote::State& now) { now.lost_answer = Error(ErrorCode::kTimedOut, "no answer"); });
  remote_.before_publish = [&](const remote::PublishGroup&) {};
  // Our publish is done but unanswered; another's follows; our repetition then is the newest again. The memory must
  // end as the cluster ends, whatever came first.
  ASSERT_TRUE(catalog.enqueue(plain("f", "ours")));
  EXPECT_TRUE(eventually([&] { return remote_.published().size() == 1; }));
  remote_.set("aa", elsewhere("f", "theirs"));
  ASSERT_TRUE(catalog.drain(Deadline::after(kPatience)));
  EXPECT_TRUE(eventually([&] {
    const auto known = catalog.find("f");
    return known && known->entry == *remote_.entry("aa", "f");
  }));
}

TEST_F(PublisherTest, WhatJobsUseIsToldToTheClusterOnceInAWhile) {
  options_.renew_pause = Milliseconds(1);
  Catalog& catalog = start_synced();
  const auto renewed = [&] { return remote_.state.with([](const FakeRemote::State& now) { return now.renewed; }); };
  const std::vector<codec::Digest> once = {codec::digest_of("used")};
  for (int i = 0; i < 3; ++i) catalog.note_use(once[0]);
  EXPECT_TRUE(eventually([&] { return renewed() == once; }));
  EXPECT_TRUE(eventually([&] { return counted("catalog.renewed") == 1; }));
  catalog.note_use(once[0]);
  publish(plain("f", "1"));
  EXPECT_EQ(renewed(), once) << "its day is not over";
}

TEST_F(PublisherTest, AFullScopeIsSweptAndItsGroupWaits) {
  Catalog& catalog = start_synced();
  remote_.state.with([](FakeRemote::State& now) { now.full = true; });
  ASSERT_TRUE(catalog.enqueue(plain("f", "1")));
  ASSERT_TRUE(catalog.drain(Deadline::after(kPatience))) << "the sweep made room";
  EXPECT_EQ(catalog.publish_state("f")->state, PublishState::kPublished);
  EXPECT_EQ(remote_.state.with([](const FakeRemote::State& now) { return now.swept; }), 1U);
}

TEST_F(PublisherTest, LostEntriesAreHiddenAtOnceAndToldToTheCluster) {
  remote_.set("aa", elsewhere("d/f", "1"));
  Catalog& catalog = start_synced();
  const KnownEntry known = *catalog.find("d/f");
  remote_.fail_with(Error(ErrorCode::kUnavailable, "down"));
  catalog.report_lost(known);
  EXPECT_FALSE(catalog.find("d/f"));
  EXPECT_FALSE(catalog.has_directory("d"));
  remote_.fail_with(std::nullopt);
  EXPECT_TRUE(eventually([&] { return counted("catalog.lost_reported") == 1; }));
  EXPECT_FALSE(remote_.entry("aa", "d/f"));
  // Somebody publishes the same bytes again: there they are.
  remote_.set("aa", elsewhere("d/f", "1"));
  EXPECT_TRUE(eventually([&] { return catalog.find("d/f").has_value(); }));
}

TEST_F(PublisherTest, WhatThisHostMayNotReportIsNotTriedForEver) {
  remote_.set("aa", elsewhere("f", "1"));
  Catalog& catalog = start_synced();
  const KnownEntry known = *catalog.find("f");
  remote_.fail_with(Error(ErrorCode::kNotPermitted, "NOPERM"));
  catalog.report_lost(known);
  EXPECT_TRUE(eventually([&] { return counted("catalog.lost_dropped") == 1; }));
}

}  // namespace
}  // namespace inductorfs::catalog
