// SPDX-License-Identifier: Apache-2.0
// Merging at publish. What merging means is layout's; here nothing may be lost on the way.
#include "catalog/catalog_fixture.h"
#include "catalog/publisher.h"
#include "inductorfs/layout/layout.h"

namespace inductorfs::catalog {
namespace {

/// include/inductorfs/codec/frame.h: magic, version, codec.
constexpr size_t kFrameCodecAt = 5;
const std::string kPath = "cache/" + std::string(64, 'a');

/// A file of torch's PersistentCache with one timing.
std::string timing(const std::string& choice, const std::string& milliseconds = "0.5") {
  const std::string raw = R"({"system": {"device": {"name": "H100"}, "version": {"triton": "x"}, "hash": ")" +
                          std::string(64, 'a') + R"("}, "cache": {"mm": {"inputs": {"high": {")" + choice +
                          "\": " + milliseconds + "}}}}}";
  // In the form that a merge gives.
  auto form = layout::merge_system_autotune(raw, raw);
  return form ? *form : raw;
}

class MergeTest : public CatalogFixture {
 protected:
  Publish merging(const std::string& bytes) {
    Publish publish = plain(kPath, bytes);
    publish.kind = Publish::Kind::kMerge;
    return publish;
  }
  [[nodiscard]] std::string cluster_bytes() { return remote_.bytes(remote_.entry("aa", kPath)->digest); }
};

TEST_F(MergeTest, TheFirstGoesAsItIs) {
  start_synced();
  const auto report = publish(merging(timing("ours")));
  EXPECT_EQ(report.state, PublishState::kPublished) << report.why;
  ASSERT_TRUE(report.merged);
  EXPECT_EQ(report.merged->digest, codec::digest_of(timing("ours")));
  EXPECT_EQ(cluster_bytes(), timing("ours"));
}

TEST_F(MergeTest, KeepsTheTimingsOfBoth) {
  remote_.set_with_bytes("aa", elsewhere(kPath, ""), timing("theirs"));
  Catalog& catalog = start_synced();
  const auto report = publish(merging(timing("ours")));
  ASSERT_EQ(report.state, PublishState::kPublished) << report.why;
  EXPECT_NE(cluster_bytes().find("ours"), std::string::npos);
  EXPECT_NE(cluster_bytes().find("theirs"), std::string::npos);
  ASSERT_TRUE(report.merged);
  EXPECT_EQ(store_.bytes(report.merged->digest), cluster_bytes()) << "the reader finds it in the store";
  EXPECT_EQ(catalog.find(kPath)->entry, *report.merged);
}

TEST_F(MergeTest, WhatIsQueuedForAScopeThatIsNoLongerFollowedIsMergedWithWhatItHas) {
  remote_.set_with_bytes("aa", elsewhere(kPath, ""), timing("theirs"));
  Catalog& catalog = start_synced();
  remote_.fail_with(Error(ErrorCode::kUnavailable, "down"));
  ASSERT_TRUE(catalog.enqueue(merging(timing("ours"))));
  catalog.follow({"bb"});
  remote_.fail_with(std::nullopt);
  ASSERT_TRUE(catalog.drain(Deadline::after(kPatience)));
  EXPECT_NE(cluster_bytes().find("ours"), std::string::npos);
  EXPECT_NE(cluster_bytes().find("theirs"), std::string::npos);
}

TEST_F(MergeTest, WhatTheClusterHasAlreadyIsNotPublishedAgain) {
  remote_.set_with_bytes("aa", elsewhere(kPath, ""), *layout::merge_system_autotune(timing("a"), timing("b")));
  start_synced();
  const auto report = publish(merging(timing("a")));
  EXPECT_EQ(report.state, PublishState::kPublished);
  EXPECT_TRUE(remote_.published().empty());
  ASSERT_TRUE(report.merged);
  EXPECT_EQ(report.merged->origin, "other/mount");
}

TEST_F(MergeTest, LosesNothingWhenOthersComeInBetween) {
  start_synced();
  int left = 4;
  remote_.before_publish = [&](const remote::PublishGroup&) {
    if (left-- <= 0) return;
    // Another node merges its own into whatever there is.
    const auto there = remote_.entry("aa", kPath);
    const std::string theirs = timing("other" + std::to_string(left));
    const std::string bytes = there ? *layout::merge_system_autotune(theirs, remote_.bytes(there->digest)) : theirs;
    remote_.set_with_bytes("aa", elsewhere(kPath, ""), bytes);
  };
  const auto report = publish(merging(timing("ours")));
  ASSERT_EQ(report.state, PublishState::kPublished) << report.why;
  for (const char* choice : {"ours", "other0", "other1", "other2", "other3"}) {
    EXPECT_NE(cluster_bytes().find(choice), std::string::npos) << choice;
  }
}

TEST_F(MergeTest, EndlessConflictsLeaveItQueuedAndSaySo) {
  Catalog& catalog = start_synced();
  std::atomic<int> round{0};
  std::atomic<bool> busy{true};
  remote_.before_publish = [&](const remote::PublishGroup&) {
    if (busy) remote_.set_with_bytes("aa", elsewhere(kPath, ""), timing("t" + std::to_string(round++)));
  };
  ASSERT_TRUE(catalog.enqueue(merging(timing("ours"))));
  EXPECT_TRUE(eventually([&] { return !catalog.publish_state(kPath)->why.empty(); }));
  EXPECT_EQ(catalog.publish_state(kPath)->state, PublishState::kQueued);
  busy = false;
  EXPECT_TRUE(catalog.drain(Deadline::after(kPatience)));
  EXPECT_NE(cluster_bytes().find("ours"), std::string::npos);
}

TEST_F(MergeTest, BytesThatAreNoTimingsAreRefusedWithTheReason) {
  remote_.set_with_bytes("aa", elsewhere(kPath, ""), "not JSON");
  start_synced();
  const auto report = publish(merging(timing("ours")));
  EXPECT_EQ(report.state, PublishState::kRefused);
  EXPECT_FALSE(report.why.empty());
  EXPECT_EQ(cluster_bytes(), "not JSON");
}

TEST_F(MergeTest, OneThatOnlyANewerReleaseCanReadStays) {
  remote_.set_with_bytes("aa", elsewhere(kPath, ""), timing("theirs"));
  const codec::Digest digest = codec::digest_of(timing("theirs"));
  remote_.state.with([&](FakeRemote::State& state) { state.frames[digest][kFrameCodecAt] = 77; });
  Catalog& catalog = start_synced();
  ASSERT_TRUE(catalog.enqueue(merging(timing("ours"))));
  EXPECT_TRUE(eventually([&] { return catalog.publish_state(kPath)->why.find("newer") != std::string::npos; }));
  EXPECT_EQ(remote_.entry("aa", kPath)->digest, digest);
}

TEST_F(MergeTest, AnEvictedOneIsReplaced) {
  remote_.set("aa", elsewhere(kPath, "evicted"));
  start_synced();
  EXPECT_EQ(publish(merging(timing("ours"))).state, PublishState::kPublished);
  EXPECT_EQ(cluster_bytes(), timing("ours"));
}

TEST_F(MergeTest, OneThatWasFoundLostHereIsReplacedToo) {
  Catalog& catalog = open();
  remote_.set("aa", elsewhere(kPath, "evicted"));
  // No report to the cluster gets through, so that the entry stays there.
  catalog.start(
      {}, [this](const PublishReport& report) { told_.with([&](Told& told) { told.reports.push_back(report); }); });
  ASSERT_TRUE(eventually([&] { return catalog.find(kPath).has_value(); }));
  remote_.fail_with(Error(ErrorCode::kNotPermitted, "NOPERM"));
  catalog.report_lost(*catalog.find(kPath));
  EXPECT_TRUE(eventually([&] { return counted("catalog.lost_dropped") == 1; }));
  remote_.fail_with(std::nullopt);
  EXPECT_EQ(publish(merging(timing("ours"))).state, PublishState::kPublished);
  EXPECT_EQ(cluster_bytes(), timing("ours"));
}

}  // namespace
}  // namespace inductorfs::catalog
