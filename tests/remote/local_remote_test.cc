// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/remote/local_remote.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "support/patience.h"

namespace inductorfs::remote {
namespace {

const remote::ScopeId kScope(64, 'a');
constexpr Milliseconds kPatience{10000};

class CountingSource final : public remote::BlobSource {
 public:
  Result<void> read(const codec::Digest&, size_t, const std::function<Result<void>(std::string_view)>&) override {
    ++reads;
    return {};
  }
  int reads = 0;
};

class RecordingSink final : public remote::BlobSink {
 public:
  Result<void> piece(const codec::Digest&, std::string_view) override {
    ++pieces;
    return {};
  }
  void done(const codec::Digest&, Result<void> outcome) override { outcomes.push_back(std::move(outcome)); }
  int pieces = 0;
  std::vector<Result<void>> outcomes;
};

remote::PublishGroup group_of(const std::string& path, const std::string& bytes) {
  codec::Entry entry;
  entry.path = path;
  entry.digest = codec::digest_of(bytes);
  entry.size = bytes.size();
  entry.origin = "test";
  remote::PublishGroup group;
  group.scope = kScope;
  group.entries.push_back(entry);
  return group;
}

TEST(LocalRemote, KeepsEntriesButNoBytes) {
  const auto local = make_local_remote();
  CountingSource source;
  const remote::PublishGroup group = group_of("ab/x.py", "text");

  ASSERT_TRUE(local.index->publish(group, source, Deadline::after(kPatience)).has_value());

  EXPECT_EQ(source.reads, 0);
  const auto delta = local.index->read_changes(kScope, {}, Deadline::after(kPatience));
  ASSERT_TRUE(delta.has_value());
  EXPECT_EQ(delta->set, std::deque(group.entries.begin(), group.entries.end()));
  RecordingSink sink;
  const codec::Digest digests[] = {group.entries[0].digest};
  local.blobs->fetch(digests, sink, Deadline::after(kPatience));
  ASSERT_EQ(sink.outcomes.size(), 1U);
  EXPECT_EQ(sink.outcomes[0].error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(sink.pieces, 0);
}

TEST(LocalRemote, DecidesContests) {
  const auto local = make_local_remote();
  CountingSource source;
  remote::PublishGroup first = group_of("triton/@/K/a.cubin", "1");
  first.contest = remote::PublishGroup::Contest{"triton/@/K", 0};
  remote::PublishGroup second = group_of("triton/@/K/b.cubin", "2");
  second.contest = first.contest;

  EXPECT_EQ(local.index->publish(first, source, Deadline::after(kPatience)).value(),
            remote::PublishOutcome::kPublished);
  EXPECT_EQ(local.index->publish(second, source, Deadline::after(kPatience)).value(),
            remote::PublishOutcome::kSuperseded);
}

TEST(LocalRemote, EndsAWaitAtOnceThatIsCancelledAndWoken) {
  constexpr int kRounds = 40;
  const auto local = make_local_remote();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kRounds; ++i) {
    std::atomic<int> asked = 0;
    std::atomic<bool> over = false;
    std::jthread waiter([&] {
      const auto moved = local.index->wait_for_changes({{kScope, {}}}, kPatience, [&] { return ++asked, over.load(); });
      EXPECT_TRUE(moved && moved->empty());
    });
    while (asked == 0) std::this_thread::yield();
    over = true;
    local.index->wake_waiters();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kRounds * Milliseconds(50) * testing::kSlowness);
}

TEST(LocalRemote, GoesOnWithAWaitThatIsWokenAndNotCancelled) {
  const auto local = make_local_remote();
  std::atomic<int> asked = 0;
  Result<std::vector<ScopeId>> moved;
  std::jthread waiter([&] {
    moved = local.index->wait_for_changes({{kScope, {}}}, kPatience, [&] { return ++asked, false; });
  });
  while (asked == 0) std::this_thread::yield();
  local.index->wake_waiters();
  while (asked == 1) std::this_thread::yield();
  CountingSource source;
  ASSERT_TRUE(local.index->publish(group_of("ab/x.py", "text"), source, Deadline::after(kPatience)));
  waiter.join();
  ASSERT_TRUE(moved);
  EXPECT_EQ(*moved, std::vector<ScopeId>{kScope});
}

TEST(LocalRemote, IsAlwaysThere) { EXPECT_TRUE(make_local_remote().operators->health().reachable); }

TEST(LocalRemote, RemembersTheScopesOfThisHost) {
  const remote::Remote remote = make_local_remote();
  const std::string text = "inductorfs-scope-v1\nfacet=torch\nv=1\n";
  const remote::ScopeInformation scope{codec::digest_of(text).to_hex(), "fxgraph", text};
  ASSERT_TRUE(remote.index->announce_scope(scope, Deadline::after(kPatience)).has_value());
  const auto listed = remote.index->list_scopes(10, Deadline::after(kPatience));
  ASSERT_TRUE(listed.has_value());
  ASSERT_EQ(listed->size(), 1U);
  EXPECT_EQ(listed->front().text, text);
}

}  // namespace
}  // namespace inductorfs::remote
