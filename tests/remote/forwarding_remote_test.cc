// SPDX-License-Identifier: Apache-2.0
#include "remote/forwarding_remote.h"

#include <gtest/gtest.h>

#include "remote/remote_fakes.h"

namespace inductorfs::remote {
namespace {

/// Writes down which calls came, and answers each with something that no default answers. Needs external
/// synchronisation.
class Recorder final : public Blobs, public Index, public Operators {
 public:
  explicit Recorder(std::vector<std::string>& calls) : calls_(calls) {}

  void fetch(std::span<const codec::Digest> digests, BlobSink& sink, Deadline) override {
    calls_.emplace_back("fetch");
    for (const codec::Digest& digest : digests) sink.done(digest, fail(ErrorCode::kCorrupt));
  }
  void fetch_within(std::span<const codec::Digest> digests, BlobSink& sink, Budget&) override {
    calls_.emplace_back("fetch_within");
    for (const codec::Digest& digest : digests) sink.done(digest, fail(ErrorCode::kTooLarge));
  }
  bool resting() const override { return true; }
  Result<PublishOutcome> publish(const PublishGroup& group, BlobSource&, Deadline) override {
    calls_.push_back("publish " + group.scope);
    return PublishOutcome::kHeld;
  }
  Result<GatherReport> gather(std::span<const codec::Digest> digests, Deadline /*deadline*/) override {
    calls_.push_back("gather " + std::to_string(digests.size()));
    return GatherReport{.blobs = digests.size()};
  }
  Result<void> renew(std::span<const codec::Digest> digests, Deadline) override {
    calls_.push_back("renew " + std::to_string(digests.size()));
    return fail(ErrorCode::kUnavailable);
  }
  Result<Delta> read_changes(const ScopeId& scope, const Position& from, Deadline) override {
    calls_.push_back("read_changes " + scope);
    return Delta{.reset = true, .set = {}, .removed = {}, .position = from};
  }
  Result<std::vector<ScopeId>> wait_for_changes(const std::vector<std::pair<ScopeId, Position>>& scopes, Milliseconds,
                                                const std::function<bool()>& cancelled) override {
    calls_.emplace_back(cancelled() ? "wait_for_changes, cancelled" : "wait_for_changes");
    return std::vector<ScopeId>{scopes.front().first};
  }
  void wake_waiters() override { calls_.emplace_back("wake_waiters"); }
  Result<void> report_lost(const ScopeId& scope, const std::string& path, const codec::Digest&, Deadline) override {
    calls_.push_back("report_lost " + scope + " " + path);
    return fail(ErrorCode::kUnavailable);
  }
  Result<SweepReport> sweep(const ScopeId& scope, bool wanted, Deadline) override {
    calls_.push_back("sweep " + scope + (wanted ? " wanted" : ""));
    return SweepReport{.ours = true, .looked_at = 7};
  }
  Result<void> announce_scope(const ScopeInformation& scope, Deadline) override {
    calls_.push_back("announce_scope " + scope.id);
    return fail(ErrorCode::kNotPermitted);
  }
  Result<std::vector<ScopeInformation>> list_scopes(size_t limit, Deadline) override {
    return std::vector<ScopeInformation>(limit);
  }
  Result<BeatAnswer> beat(const std::string& id, std::string_view record, Deadline) override {
    calls_.push_back("beat " + id + " " + std::string(record));
    return BeatAnswer{"orders", "why"};
  }
  void leave(const std::string& id, Deadline) override { calls_.push_back("leave " + id); }
  Result<std::vector<NodeRecord>> list_nodes(size_t limit, Deadline) override { return std::vector<NodeRecord>(limit); }
  Result<void> remember_node(const std::string& name, Deadline) override {
    calls_.push_back("remember_node " + name);
    return {};
  }
  void forget_node(const std::string& name, Deadline) override { calls_.push_back("forget_node " + name); }
  Result<std::vector<MissingNode>> list_missing_nodes(Milliseconds least, Deadline) override {
    return std::vector<MissingNode>{{"missing", least}};
  }
  Result<OrdersNow> read_orders(Deadline) override { return OrdersNow{"orders", 7}; }
  Result<bool> replace_orders(const std::string& before, const std::string& after, Deadline) override {
    calls_.push_back("replace_orders " + before + " " + after);
    return true;
  }
  Result<PurgeReport> purge(const ScopeId& scope, const std::function<bool(const codec::Entry&)>& selects, bool dry_run,
                            Deadline) override {
    calls_.push_back("purge " + scope + (selects({}) ? " all" : "") + (dry_run ? " dry" : ""));
    PurgeReport report;
    report.looked_at = 3;
    return report;
  }
  Result<void> remove_blob(const codec::Digest&, Deadline) override {
    calls_.emplace_back("remove_blob");
    return fail(ErrorCode::kBusy);
  }
  Result<ServerFacts> probe(Deadline) override { return ServerFacts{.version = "7.9"}; }
  Health health() const override { return {true, "there", "an error"}; }
  uint64_t server_changes() const override { return 5; }
  Result<void> confirm_server(Deadline) override { return fail(ErrorCode::kTooLarge); }
  std::shared_ptr<Blobs> blobs_until(std::function<bool()>) override { return std::make_shared<Recorder>(calls_); }
  std::shared_ptr<Index> index_until(std::function<bool()>) override { return std::make_shared<Recorder>(calls_); }

 private:
  std::vector<std::string>& calls_;
};

class ForwardingRemoteTest : public ::testing::Test {
 protected:
  std::vector<std::string> calls;
  Recorder recorder{calls};
  ForwardingBlobs blobs{lent(recorder)};
  ForwardingIndex index{lent(recorder)};
  ForwardingOperators operators{lent(recorder)};
  const codec::Digest digest = codec::digest_of("bytes");
};

TEST_F(ForwardingRemoteTest, PassesFetchesOnWithTheirBudget) {
  FakeSink by_deadline;
  blobs.fetch({&digest, 1}, by_deadline, soon());
  FakeSink by_budget;
  Budget budget(soon(), Milliseconds(1000), std::chrono::steady_clock::now());
  blobs.fetch_within({&digest, 1}, by_budget, budget);

  EXPECT_EQ(calls, (std::vector<std::string>{"fetch", "fetch_within"}));
  EXPECT_EQ(by_deadline.error_of(digest), ErrorCode::kCorrupt);
  EXPECT_EQ(by_budget.error_of(digest), ErrorCode::kTooLarge);
  EXPECT_TRUE(blobs.resting());
}

TEST_F(ForwardingRemoteTest, PassesOnWhatIsTold) {
  FakeSource source;
  PublishGroup group;
  group.scope = "aa";

  EXPECT_EQ(index.publish(group, source, soon()).value(), PublishOutcome::kHeld);
  EXPECT_EQ(blobs.renew({&digest, 1}, soon()).error().code(), ErrorCode::kUnavailable);
  EXPECT_EQ(blobs.gather({&digest, 1}, soon())->blobs, 1U);
  EXPECT_EQ(index.report_lost("bb", "path", digest, soon()).error().code(), ErrorCode::kUnavailable);
  EXPECT_EQ(index.sweep("cc", true, soon())->looked_at, 7U);
  EXPECT_EQ(index.announce_scope({"dd", "family", "text"}, soon()).error().code(), ErrorCode::kNotPermitted);
  index.wake_waiters();
  EXPECT_EQ(calls, (std::vector<std::string>{"publish aa", "renew 1", "gather 1", "report_lost bb path",
                                             "sweep cc wanted", "announce_scope dd", "wake_waiters"}));
}

TEST_F(ForwardingRemoteTest, PassesOnWhatAnOperatorAsks) {
  EXPECT_EQ(operators.beat("aa", "record", soon())->orders, "orders");
  operators.leave("aa", soon());
  EXPECT_EQ(operators.list_nodes(4, soon())->size(), 4U);
  EXPECT_TRUE(operators.remember_node("name", soon()));
  operators.forget_node("name", soon());
  EXPECT_EQ(operators.list_missing_nodes(Milliseconds{9}, soon())->front().age, Milliseconds{9});
  EXPECT_EQ(operators.read_orders(soon())->server_time, 7);
  EXPECT_TRUE(operators.replace_orders("x", "y", soon()).value());
  EXPECT_EQ(operators
                .purge(
                    "bb", [](const auto&) { return true; }, true, soon())
                ->looked_at,
            3U);
  EXPECT_EQ(operators.remove_blob(digest, soon()).error().code(), ErrorCode::kBusy);
  EXPECT_EQ(calls, (std::vector<std::string>{"beat aa record", "leave aa", "remember_node name", "forget_node name",
                                             "replace_orders x y", "purge bb all dry", "remove_blob"}));
}

TEST_F(ForwardingRemoteTest, PassesOnWhatIsAsked) {
  const Position position{3, "nonce"};

  EXPECT_EQ(index.read_changes("aa", position, soon())->position, position);
  EXPECT_EQ(index.wait_for_changes({{"bb", position}}, Milliseconds(1), [] { return true; }).value(),
            std::vector<ScopeId>{"bb"});
  EXPECT_EQ(calls, (std::vector<std::string>{"read_changes aa", "wait_for_changes, cancelled"}));
  EXPECT_EQ(index.list_scopes(4, soon())->size(), 4U);
  EXPECT_EQ(operators.probe(soon())->version, "7.9");
  EXPECT_EQ(operators.health().address, "there");
  EXPECT_EQ(index.server_changes(), 5U);
  EXPECT_EQ(index.confirm_server(soon()).error().code(), ErrorCode::kTooLarge);
}

TEST_F(ForwardingRemoteTest, HandsOutNoHandleThatGoesPastItsOverrides) {
  EXPECT_EQ(blobs.blobs_until([] { return false; }).get(), &blobs);
  EXPECT_EQ(index.index_until([] { return false; }).get(), &index);
}

}  // namespace
}  // namespace inductorfs::remote
