// SPDX-License-Identifier: Apache-2.0
#include "vfs/read/fetcher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <map>
#include <thread>

#include "inductorfs/codec/frame.h"
#include "support/memory_store.h"
#include "vfs/faulty_remote.h"
#include "vfs/host.h"

namespace inductorfs::testing {
namespace {

using vfs::FetchOutcome;
using Outcomes = std::vector<FetchOutcome>;

class Fetcher : public ::testing::Test {
 protected:
  /// Puts bytes into the cluster, as another host would.
  codec::Entry published(const std::string& bytes) {
    codec::Entry entry;
    entry.path = in_code_directory(code_name(bytes) + ".py");
    entry.digest = codec::digest_of(bytes);
    entry.size = bytes.size();
    entry.origin = "another host";
    remote::PublishGroup group;
    group.scope = std::string(64, 'a');
    group.entries = {entry};
    Host writer(cluster);
    EXPECT_TRUE(writer.publish_file(entry.path, bytes));
    EXPECT_TRUE(writer.sync());
    return entry;
  }
  vfs::Fetcher& fetcher() {
    if (!fetcher_) {
      fetcher_ = std::make_unique<vfs::Fetcher>(
          remote, store, counters,
          vfs::Fetcher::Hooks{[this](const codec::Entry& entry, std::optional<std::string_view> verified) {
                                checked.with([&](auto& told) {
                                  told[entry.path] = std::string(verified.value_or("in the store"));
                                });
                                return entry.path == misfit ? misfits : check;
                              },
                              [this](const codec::Entry& entry, const std::string& why) {
                                newer.with([&](auto& told) { told.emplace(entry.path, why); });
                              }},
          2, total);
    }
    return *fetcher_;
  }
  std::future<Outcomes> fetch(const std::vector<codec::Entry>& entries) {
    const auto promise = std::make_shared<std::promise<Outcomes>>();
    fetcher().fetch(entries, [promise](const Outcomes& outcomes) { promise->set_value(outcomes); });
    return promise->get_future();
  }
  /// What a fetcher of its own says that has this remote.
  FetchOutcome fetch_over(remote::Blobs& link, const codec::Entry& entry) {
    vfs::Fetcher reader(link, store, counters,
                        {[](const codec::Entry&, std::optional<std::string_view>) { return Result<void>{}; },
                         [this](const codec::Entry& one, const std::string& why) {
                           newer.with([&](auto& told) { told.emplace(one.path, why); });
                         }},
                        1, total);
    std::promise<Outcomes> promise;
    reader.fetch({entry}, [&promise](const Outcomes& outcomes) { promise.set_value(outcomes); });
    return promise.get_future().get().front();
  }

  std::shared_ptr<remote::MemoryCluster> cluster = remote::make_memory_cluster();
  std::shared_ptr<Fault> fault = std::make_shared<Fault>();
  FaultyBlobs remote{remote::open_memory(cluster).blobs, fault};
  MemoryStore store;
  Counters counters;
  Result<void> check;
  std::string misfit;  ///< a name for which the check answers something else
  Result<void> misfits = fail(ErrorCode::kCorrupt, "not what the name says");
  Milliseconds total{20'000};
  Guarded<std::map<std::string, std::string>> checked;  ///< paths, and the bytes that the check was given
  Guarded<std::map<std::string, std::string>> newer;    ///< paths that only a newer release can read, and why

 private:
  std::unique_ptr<vfs::Fetcher> fetcher_;
};

TEST_F(Fetcher, BringsWhatTheClusterHasAndTellsWhatItHasNot) {
  const auto here = published("one");
  codec::Entry never = here;
  never.digest = codec::digest_of("never published");

  EXPECT_EQ(fetch({here, never}).get(), (Outcomes{FetchOutcome::kHere, FetchOutcome::kLost}));

  EXPECT_EQ(store.bytes(here.digest), "one");
  EXPECT_EQ(counters.get("fetch.absent").get(), 1U);
}

TEST_F(Fetcher, GivesTheBytesOfASmallBlobToTheCheck) {
  const auto small = published("small");
  const auto large = published(std::string(store::BlobFile::kPackedMost + 1, 'l'));
  const auto empty = published("");

  EXPECT_EQ(fetch({small, large, empty}).get(), Outcomes(3, FetchOutcome::kHere));
  EXPECT_EQ(checked.with([&](const auto& now) { return now.at(small.path); }), "small");
  EXPECT_EQ(fetch({small}).get(), Outcomes{FetchOutcome::kHere});

  const auto told = checked.with([](const auto& now) { return now; });
  EXPECT_EQ(told.at(large.path), "in the store");
  EXPECT_EQ(told.at(empty.path), "");
  EXPECT_EQ(told.at(small.path), "in the store") << "the second time nothing was fetched";
}

TEST_F(Fetcher, SharesOneFetchAmongAllWhoWaitForABlob) {
  const auto entry = published("one");
  fault->set(Fault::Mode::kHang);
  auto first = fetch({entry});
  ASSERT_TRUE(eventually([&] { return fault->hanging() == 1; }));
  auto second = fetch({entry, entry});
  fault->set(Fault::Mode::kNone);

  EXPECT_EQ(first.get(), (Outcomes{FetchOutcome::kHere}));
  EXPECT_EQ(second.get(), (Outcomes{FetchOutcome::kHere, FetchOutcome::kHere}));
  EXPECT_EQ(fault->fetched(entry.digest), 1U);
}

TEST_F(Fetcher, LetsANeedOvertakeThePrefetchThatItRestsIn) {
  const auto blocker = published("blocker");
  const auto other = published("other blocker");
  const auto entry = published("wanted");
  fault->only({blocker.digest, other.digest});
  fault->set(Fault::Mode::kHang);
  fetcher().prefetch({blocker});
  fetcher().prefetch({other});
  ASSERT_TRUE(eventually([&] { return fault->hanging() == 2; }));
  fetcher().prefetch({entry});  // behind those that hang: two threads prefetch

  EXPECT_EQ(fetch({entry}).get(), (Outcomes{FetchOutcome::kHere}));

  fault->set(Fault::Mode::kNone);
  ASSERT_TRUE(eventually([&] { return store.find(blocker.digest).has_value(); }));
  fetcher().stop();
  EXPECT_EQ(fault->fetched(entry.digest), 1U) << "the prefetch has nothing left to do";
}

TEST_F(Fetcher, SaysNotNowAndFetchesAgainLater) {
  const auto entry = published("one");
  fault->set(Fault::Mode::kFail);
  EXPECT_EQ(fetch({entry}).get(), (Outcomes{FetchOutcome::kNotNow}));
  fault->set(Fault::Mode::kNone);
  EXPECT_EQ(fetch({entry}).get(), (Outcomes{FetchOutcome::kHere}));
}

TEST_F(Fetcher, EndsAtItsDeadlineWhenTheRemoteHangs) {
  total = Milliseconds{50};
  const auto entry = published("one");
  fault->set(Fault::Mode::kHang);
  EXPECT_EQ(fetch({entry}).get(), (Outcomes{FetchOutcome::kNotNow}));
}

TEST_F(Fetcher, GivesUpBytesThatDoNotFitTheirNameAndCallsThemNotLost) {
  const auto entry = published("one");
  check = fail(ErrorCode::kCorrupt, "not what the name says");
  EXPECT_EQ(fetch({entry}).get(), (Outcomes{FetchOutcome::kUnfit})) << "they are the ones that were published";
  EXPECT_FALSE(store.find(entry.digest));
}

/// A remote whose frames are those of another release, as a cluster of several releases has them.
class NewerBlobs final : public remote::ForwardingBlobs {
 public:
  using ForwardingBlobs::ForwardingBlobs;
  void fetch_within(std::span<const codec::Digest> digests, remote::BlobSink& sink, Budget&) override {
    for (const auto& digest : digests) {
      auto frame = *codec::encode_frame("one");
      frame[5] = 77;  // the codec
      auto given = sink.piece(digest, frame);
      EXPECT_FALSE(given);
      sink.done(digest, std::move(given));
    }
  }
};

TEST_F(Fetcher, WhatOnlyANewerReleaseCanReadIsNotLostUnderAnyName) {
  const auto entry = published("one");
  auto other = entry;
  other.path = "another/name";
  NewerBlobs remote_of_two(remote::open_memory(cluster).blobs);
  std::map<std::string, std::string> told;
  vfs::Fetcher old(remote_of_two, store, counters,
                   {[](const codec::Entry&, std::optional<std::string_view>) { return Result<void>{}; },
                    [&](const codec::Entry& one, const std::string& why) { told.emplace(one.path, why); }},
                   1, total);
  const auto promise = std::make_shared<std::promise<Outcomes>>();
  old.fetch({entry, other}, [promise](const Outcomes& outcomes) { promise->set_value(outcomes); });
  EXPECT_EQ(promise->get_future().get(), (Outcomes{FetchOutcome::kUnfit, FetchOutcome::kUnfit}));
  old.stop();
  ASSERT_EQ(told.size(), 2U);
  EXPECT_NE(told["another/name"].find("codec 77"), std::string::npos) << told["another/name"];
  EXPECT_EQ(counters.get("fetch.corrupt").get(), 0U);
}

/// A link that flips one bit of each of the first frames that come over it, in these bytes, and of no other.
class FlippedBits final : public remote::ForwardingBlobs {
 public:
  FlippedBits(std::shared_ptr<remote::Blobs> inner, std::vector<size_t> bytes)
      : ForwardingBlobs(std::move(inner)), bytes_(std::move(bytes)) {}
  void fetch_within(std::span<const codec::Digest> digests, remote::BlobSink& sink, Budget&) override {
    for (const auto& digest : digests) {
      auto frame = *codec::encode_frame("one");
      const size_t reading = readings++;
      if (reading < bytes_.size()) frame[bytes_[reading]] = static_cast<char>(frame[bytes_[reading]] ^ 0x40);
      auto given = sink.piece(digest, frame);
      sink.done(digest, std::move(given));
    }
  }
  std::atomic<size_t> readings = 0;

 private:
  const std::vector<size_t> bytes_;
};

TEST_F(Fetcher, ABitThatFlippedOnTheWayCostsAReadingAndNoEntry) {
  const auto entry = published("one");
  const size_t whole = codec::encode_frame("one")->size();
  for (size_t byte = 0; byte < whole; ++byte) {
    FlippedBits link(remote::open_memory(cluster).blobs, {byte});
    EXPECT_EQ(fetch_over(link, entry), FetchOutcome::kHere) << "byte " << byte << " of " << whole;
    EXPECT_EQ(link.readings, 2U) << "byte " << byte;
    store.discard(entry.digest);
  }
  EXPECT_EQ(newer.with([](const auto& told) { return told.size(); }), 0U);
  EXPECT_EQ(counters.get("fetch.read_again").get(), whole);
  EXPECT_EQ(counters.get("fetch.corrupt").get(), 0U);
}

TEST_F(Fetcher, ALinkThatDamagesEachReadingTakesNoEntryAwayAndHidesNone) {
  constexpr size_t kVersion = 4;
  constexpr size_t kCodec = 5;
  const auto entry = published("one");
  const size_t last = codec::encode_frame("one")->size() - 1;
  for (const auto& bytes : std::vector<std::vector<size_t>>{
           {last, last, kVersion}, {kVersion, kVersion, kCodec}, {kCodec, last, kCodec}, {kVersion, kCodec, last}}) {
    FlippedBits link(remote::open_memory(cluster).blobs, bytes);
    EXPECT_EQ(fetch_over(link, entry), FetchOutcome::kNotNow);
    EXPECT_EQ(fetch_over(link, entry), FetchOutcome::kHere);
    store.discard(entry.digest);
  }
  EXPECT_EQ(newer.with([](const auto& told) { return told.size(); }), 0U);
  EXPECT_EQ(counters.get("fetch.corrupt").get(), 0U);
}

TEST_F(Fetcher, WhatThreeReadingsFindDamagedAlikeIsDamagedInTheCluster) {
  const auto entry = published("one");
  const size_t last = codec::encode_frame("one")->size() - 1;
  FlippedBits link(remote::open_memory(cluster).blobs, {last, last, last});
  EXPECT_EQ(fetch_over(link, entry), FetchOutcome::kLost);
  EXPECT_EQ(counters.get("fetch.corrupt").get(), 1U);
}

TEST_F(Fetcher, JudgesABlobThatIsHereByEachNameThatAsksForIt) {
  const auto entry = published("one");
  ASSERT_EQ(fetch({entry}).get(), (Outcomes{FetchOutcome::kHere}));
  auto other = entry;
  other.path = misfit = "another/name";
  EXPECT_EQ(fetch({other, entry}).get(), (Outcomes{FetchOutcome::kUnfit, FetchOutcome::kHere}));
  misfits = fail(ErrorCode::kNotSupported, "for another host");
  EXPECT_EQ(fetch({other, entry}).get(), (Outcomes{FetchOutcome::kUnfit, FetchOutcome::kHere}));
  misfits = fail(ErrorCode::kUnavailable, "the disk did not answer");
  EXPECT_EQ(fetch({other, entry}).get(), (Outcomes{FetchOutcome::kNotNow, FetchOutcome::kHere}));
  EXPECT_TRUE(store.find(entry.digest)) << "it is sound, and another name's";
  EXPECT_EQ(counters.get("fetch.corrupt").get(), 0U);
  EXPECT_EQ(counters.get("fetch.not_for_this_host").get(), 2U);
}

TEST_F(Fetcher, JudgesABlobThatComesByEachNameThatWaitsForIt) {
  const auto entry = published("one");
  auto other = entry;
  other.path = misfit = "another/name";
  EXPECT_EQ(fetch({entry, other}).get(), (Outcomes{FetchOutcome::kHere, FetchOutcome::kUnfit}));
  EXPECT_TRUE(store.find(entry.digest));
  store.discard(entry.digest);
  // The one that it is fetched for does not fit: of the other nothing is known yet.
  EXPECT_EQ(fetch({other, entry}).get(), (Outcomes{FetchOutcome::kUnfit, FetchOutcome::kNotNow}));
  EXPECT_EQ(fetch({entry}).get(), (Outcomes{FetchOutcome::kHere}));
}

TEST_F(Fetcher, GivesUpAFrameOfAnotherSize) {
  const auto entry = published("four");
  for (const uint64_t size : {0U, 3U, 5U, 5000U}) {
    auto liar = entry;
    liar.size = size;
    EXPECT_EQ(fetch({liar}).get(), (Outcomes{FetchOutcome::kLost})) << size;
    EXPECT_FALSE(store.find(entry.digest));
  }
  EXPECT_EQ(counters.get("fetch.corrupt").get(), 4U);
}

/// Two names of the same bytes, and one entry that lies.
TEST_F(Fetcher, ABlobThatIsHereProvesNoEntryOfAnotherSize) {
  const auto entry = published("four");
  ASSERT_EQ(fetch({entry}).get(), (Outcomes{FetchOutcome::kHere}));
  for (const uint64_t size : {3U, 5U}) {
    auto liar = entry;
    liar.size = size;
    EXPECT_FALSE(vfs::is_here(store, liar));
    EXPECT_EQ(fetch({liar}).get(), (Outcomes{FetchOutcome::kLost})) << size;
  }
  EXPECT_EQ(fetch({entry}).get(), (Outcomes{FetchOutcome::kHere})) << "the blob stays";
}

TEST_F(Fetcher, AnswersEveryWaiterWhenItStopsWhileTheRemoteHangs) {
  total = Milliseconds{200};
  std::vector<std::future<Outcomes>> waiting;
  fault->set(Fault::Mode::kHang);
  for (int i = 0; i < 6; ++i) {
    codec::Entry entry;
    entry.digest = codec::digest_of(std::to_string(i));
    entry.size = 1;
    waiting.push_back(fetch({entry}));
  }
  fetcher().stop();
  for (auto& one : waiting) EXPECT_EQ(one.get(), (Outcomes{FetchOutcome::kNotNow}));
  codec::Entry late;
  late.digest = codec::digest_of("late");
  EXPECT_EQ(fetch({late}).get(), (Outcomes{FetchOutcome::kNotNow}));
}

/// A remote whose calls hang until they are cancelled or their budget is at its end, and which says when it rests.
class HangingBlobs final : public remote::ForwardingBlobs {
 public:
  struct Shared {
    std::atomic<bool> resting = false;
    std::atomic<int> asked = 0;
  };
  explicit HangingBlobs(std::shared_ptr<Shared> shared, std::function<bool()> cancelled = {})
      : ForwardingBlobs(remote::open_memory(remote::make_memory_cluster()).blobs),
        shared_(std::move(shared)),
        cancelled_(std::move(cancelled)) {}

  void fetch(std::span<const codec::Digest>, remote::BlobSink&, Deadline) override { ADD_FAILURE() << "no budget"; }
  void fetch_within(std::span<const codec::Digest> digests, remote::BlobSink& sink, Budget& budget) override {
    ++shared_->asked;
    while (!budget.end().passed() && !(cancelled_ && cancelled_())) std::this_thread::yield();
    for (const auto& digest : digests) sink.done(digest, fail(ErrorCode::kTimedOut, "hangs"));
  }
  bool resting() const override { return shared_->resting; }
  std::shared_ptr<Blobs> blobs_until(std::function<bool()> cancelled) override {
    return std::make_shared<HangingBlobs>(shared_, std::move(cancelled));
  }

 private:
  std::shared_ptr<Shared> shared_;
  std::function<bool()> cancelled_;
};

class PatientFetcher : public ::testing::Test {
 protected:
  static codec::Entry entry(const std::string& bytes) {
    codec::Entry made;
    made.digest = codec::digest_of(bytes);
    made.size = bytes.size();
    return made;
  }
  static std::future<Outcomes> fetch(vfs::Fetcher& fetcher, const std::vector<codec::Entry>& entries) {
    const auto promise = std::make_shared<std::promise<Outcomes>>();
    fetcher.fetch(entries, [promise](const Outcomes& outcomes) { promise->set_value(outcomes); });
    return promise->get_future();
  }

  std::shared_ptr<HangingBlobs::Shared> shared = std::make_shared<HangingBlobs::Shared>();
  HangingBlobs remote{shared};
  MemoryStore store;
  Counters counters;
  const vfs::Fetcher::Hooks fits = {[](const codec::Entry&, std::optional<std::string_view>) { return Result<void>{}; },
                                    {}};
};

TEST_F(PatientFetcher, EndsItsCallsWhenItStops) {
  vfs::Fetcher fetcher(remote, store, counters, fits, 2, Milliseconds(600'000), Milliseconds(600'000));
  std::vector<std::future<Outcomes>> waiting;
  for (int i = 0; i < 6; ++i) waiting.push_back(fetch(fetcher, {entry(std::to_string(i))}));
  ASSERT_TRUE(eventually([&] { return shared->asked == 2; }));
  const auto start = std::chrono::steady_clock::now();
  fetcher.stop();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5)) << "the budget is ten minutes";
  for (auto& one : waiting) EXPECT_EQ(one.get(), (Outcomes{FetchOutcome::kNotNow}));
  EXPECT_EQ(shared->asked, 2) << "what was still queued is not asked for";
}

TEST_F(PatientFetcher, DoesNotAskARemoteThatRests) {
  vfs::Fetcher fetcher(remote, store, counters, fits, 2, Milliseconds(600'000), Milliseconds(600'000));
  shared->resting = true;
  fetcher.prefetch({entry("prefetched")});
  for (int i = 0; i < 1000; ++i) {
    auto answer = fetch(fetcher, {entry(std::to_string(i)), entry("other")});
    ASSERT_EQ(answer.wait_for(std::chrono::seconds(0)), std::future_status::ready) << "by the caller's own thread";
    EXPECT_EQ(answer.get(), (Outcomes{FetchOutcome::kAway, FetchOutcome::kAway}));
  }
  EXPECT_EQ(shared->asked, 0);
  EXPECT_EQ(counters.get("fetch.refused").get(), 2000U);
}

TEST_F(PatientFetcher, CountsTheTimeInTheQueue) {
  constexpr Milliseconds kPatience{300};
  vfs::Fetcher fetcher(remote, store, counters, fits, 1, Milliseconds(600'000), kPatience);
  std::vector<std::future<Outcomes>> waiting;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) waiting.push_back(fetch(fetcher, {entry(std::to_string(i))}));
  for (auto& one : waiting) EXPECT_EQ(one.get(), (Outcomes{FetchOutcome::kNotNow}));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10 * kPatience) << "one after the other it would be twenty";
  EXPECT_EQ(shared->asked + counters.get("fetch.late").get(), 20U);
  // Each has the time that lay between its submission and the one before: how many are late is the scheduler's choice.
  EXPECT_GE(counters.get("fetch.late").get(), 1U);
}

/// A store with a limit below the blob.
TEST_F(Fetcher, DoesNotBlameTheClusterForALimitOfThisHost) {
  const std::string big(300'000, 'x');
  const auto entry = published(big);
  TemporaryDirectory directory;
  auto small = store::BlobStore::open({directory / "store", 100'000}, counters);
  ASSERT_TRUE(small);
  vfs::Fetcher limited(remote, **small, counters,
                       {[](const codec::Entry&, std::optional<std::string_view>) { return Result<void>{}; }, {}}, 1,
                       total);
  std::promise<Outcomes> promise;
  limited.fetch({entry}, [&](const Outcomes& outcomes) { promise.set_value(outcomes); });
  EXPECT_EQ(promise.get_future().get(), (Outcomes{FetchOutcome::kNotNow}))
      << "kLost would take the entry away from hosts that have room";
}

}  // namespace
}  // namespace inductorfs::testing
