// SPDX-License-Identifier: Apache-2.0
#include "mount/cluster/orders.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/config/json.h"
#include "inductorfs/mount/cluster_control.h"
#include "inductorfs/remote/operators.h"
#include "inductorfs/remote/remote.h"
#include "remote/forwarding_remote.h"
#include "support/temporary_directory.h"

namespace inductorfs::mount {
namespace {

layout::Selection selection() {
  layout::Selection selection;
  selection.scopes = {"0123456789abcdef"};
  selection.families = {"fxgraph"};
  selection.pattern = "fxgraph/**";
  selection.digest = codec::digest_of("bytes");
  selection.before_ns = 7;
  return selection;
}

TEST(Orders, ComeBackAsTheyWere) {
  Orders orders;
  orders.freeze = {"aa", true, "a bad driver", "root@host", 1'700'000'000'000};
  orders.purges = {{3, selection()}, {5, {}}};
  orders.dropped = 2;
  const auto back = parse_orders(encode_orders(orders));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->freeze.id, "aa");
  EXPECT_TRUE(back->freeze.frozen);
  EXPECT_EQ(back->freeze.why, "a bad driver");
  EXPECT_EQ(back->dropped, 2);
  ASSERT_EQ(back->purges.size(), 2U);
  EXPECT_EQ(back->purges[0].id, 3);
  EXPECT_EQ(back->purges[0].selection, selection());
  EXPECT_EQ(back->purges[1].selection, layout::Selection{});
}

TEST(Orders, TheOldestGiveWayAndItIsSaid) {
  Orders orders;
  for (int64_t id = 1; id <= 20; ++id) orders.purges.push_back({id, {}});
  auto back = parse_orders(encode_orders(orders));
  ASSERT_EQ(back->purges.size(), kPurgeOrders);
  EXPECT_EQ(back->purges.front().id, 5);
  EXPECT_EQ(back->dropped, 4);
  layout::Selection large;
  for (size_t i = 0; i < layout::kSelectedScopesLimit; ++i) large.scopes.emplace_back(60, 'a');
  for (PurgeOrder& order : orders.purges) order.selection = large;
  const std::string text = encode_orders(orders);
  EXPECT_LE(text.size(), remote::kOrdersLimit);
  back = parse_orders(text);
  EXPECT_GE(back->purges.size(), 2U);
  EXPECT_EQ(back->purges.back().id, 20);
  EXPECT_EQ(back->dropped, back->purges.front().id - 1);
}

TEST(Orders, GarbageSaysNothingAndAConditionThatCannotBeReadIsNotNone) {
  for (const char* text : {"", "null", "[]", "{", "{}", R"({"v":2,"purges":[{"id":4,"selection":{}}]})", "7"}) {
    EXPECT_FALSE(parse_orders(text)) << text;
  }
  for (const char* members :
       {R"("freeze":7,"purges":7)", R"("purges":[7,{"id":3,"selection":{}}])", R"("purges":[{"id":-4,"selection":{}}])",
        R"("purges":[{"id":0,"selection":{}}])", R"("purges":[{"id":4}])", R"("purges":[{"id":4,"selection":7}])",
        R"("purges":[{"id":4,"selection":{"digest":"aa"}}])", R"("purges":[{"id":4,"selection":{"scopes":"aa"}}])",
        R"("purges":[{"id":4,"selection":{"families":[7]}}])", R"("purges":[{"id":4,"selection":{"pattern":7}}])",
        R"("purges":[{"id":4,"selection":{"before_ns":"x"}}])",
        R"("purges":[{"id":4,"selection":{"condition of a later release":1}},{"id":5,"selection":{}}])"}) {
    const std::string text = std::string(R"({"v":1,)") + members + "}";
    const auto orders = parse_orders(text);
    ASSERT_TRUE(orders) << text;
    EXPECT_TRUE(orders->purges.empty()) << text;
    EXPECT_FALSE(orders->freeze.frozen) << text;
  }
  const auto order =
      parse_orders(R"({"v":1,"freeze":{"id":"aa","frozen":true,"why":"\u001b[2J\nx","at":9e99},"new":[1]})");
  ASSERT_TRUE(order);
  EXPECT_EQ(order->freeze.why.find('\x1b'), std::string::npos);
  EXPECT_EQ(frozen_text(order->freeze).find('\n'), std::string::npos);
  EXPECT_TRUE(parse_orders(R"({"v":1,"freeze":{"id":"aa"}})")->freeze.id.empty()) << "no word of frozen lifts nothing";
}

TEST(Orders, WhatWasHeardIsKeptInTheStore) {
  const testing::TemporaryDirectory store;
  EXPECT_FALSE(read_heard(store.path(), "cluster").freeze.frozen);
  HeardOrders heard;
  heard.freeze = {"aa", true, "why", "who", 5};
  heard.purged = 9;
  ASSERT_TRUE(write_heard(store.path(), "cluster", heard));
  EXPECT_TRUE(read_heard(store.path(), "cluster").freeze.frozen);
  EXPECT_EQ(read_heard(store.path(), "cluster").freeze.id, "aa");
  EXPECT_EQ(read_heard(store.path(), "cluster").purged, 9);
  EXPECT_EQ(read_heard(store.path(), "cluster").freeze.at, 5);
  heard.freeze.at = system_clock().wall_now() / 1'000'000 + kMostAhead;
  ASSERT_TRUE(write_heard(store.path(), "cluster", heard));
  const auto at = read_heard(store.path(), "cluster").freeze.at;  // before the clock is asked
  EXPECT_LE(at, system_clock().wall_now() / 1'000'000) << "a lift that a later clock numbers ends it";
  EXPECT_FALSE(read_heard(store.path(), "another").freeze.frozen) << "the orders of another cluster";
  EXPECT_FALSE(read_heard(store.path(), "").freeze.frozen) << "a local cache belongs to none";
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, store.path() + "/orders", "{\"freeze\""));
  EXPECT_FALSE(read_heard(store.path(), "cluster").freeze.frozen);
}

/// What the mount of another process does between two rounds.
class Freezing : public ::testing::Test {
 protected:
  void SetUp() override {
    request_.kind = ClusterRequest::Kind::kFreeze;
    request_.acknowledged = Milliseconds(600'000);  // rounds end it
  }
  void beat(const std::string& freeze, const std::string& id = "aa") {
    const config::Json record = config::Json::object({{"mountpoint", "/m"}, {"freeze", freeze}, {"frozen", true}});
    ASSERT_TRUE(remote_.operators->beat(id, config::to_line(record), Deadline::after(Milliseconds(1000))));
  }
  void obey() {
    beat(parse_orders(remote_.operators->read_orders(Deadline::after(Milliseconds(1000)))->text)->freeze.id);
  }
  /// Returns the nodes; `after` is called with the number of each round, and says whether that was the last.
  config::Json nodes(const std::function<bool(int)>& after) {
    int round = 0;
    return run_cluster_request(*remote_.index, *remote_.operators, request_, [&] { return after(round++); })
        .value()
        .at("nodes");
  }

  remote::Remote remote_ = remote::open_memory(remote::make_memory_cluster());
  ClusterRequest request_;
};

TEST_F(Freezing, WaitsForAMountThatAFullServerHasForgotten) {
  int rounds = 0;
  const auto found = nodes([&](int round) {
    if (round == 1) obey();
    rounds = round;
    return round == 3;
  });
  EXPECT_EQ(rounds, 3) << "others may have been forgotten, too";
  ASSERT_EQ(found.size(), 1U);
  EXPECT_TRUE(found[0].at("obeyed").get<bool>());
}

TEST_F(Freezing, NamesAMountWhoseRecordHasGoneMeanwhile) {
  beat("an earlier one");
  beat("an earlier one", "bb");
  const auto found = nodes([&](int round) {
    remote_.operators->leave("aa", Deadline::after(Milliseconds(1000)));
    return round == 2;
  });
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].at("id"), "aa");
  EXPECT_EQ(found[0].at("mountpoint"), "/m");
  EXPECT_FALSE(found[0].at("obeyed").get<bool>());
}

/// The record of a mount that has obeyed an order whose number came from a clock that was ahead.
class Numbers : public ::testing::Test {
 protected:
  static Deadline soon() { return Deadline::after(Milliseconds(1000)); }
  [[nodiscard]] Orders orders() {
    return parse_orders(remote_.operators->read_orders(soon())->text).value_or(Orders{});
  }
  [[nodiscard]] int64_t ahead() { return remote_.operators->read_orders(soon())->server_time + 23LL * 3600 * 1000; }
  void order(ClusterRequest::Kind kind) {
    ClusterRequest request;
    request.kind = kind;
    request.dry_run = false;
    ASSERT_TRUE(run_cluster_request(*remote_.index, *remote_.operators, request, [] { return true; }));
  }
  remote::Remote remote_ = remote::open_memory(remote::make_memory_cluster());
};

TEST_F(Numbers, OfALiftAreLargerThanThatOfTheFreeze) {
  const int64_t at = ahead();
  Orders frozen;
  frozen.freeze = {"aa", true, "", "", at};
  ASSERT_TRUE(*remote_.operators->replace_orders("", encode_orders(frozen), soon()));
  order(ClusterRequest::Kind::kLift);
  EXPECT_GT(orders().freeze.at, at);
  order(ClusterRequest::Kind::kFreeze);
  EXPECT_GT(orders().freeze.at, at + 1);
}

TEST_F(Numbers, AreLargerThanWhatTheMountsHoldOfAServerThatHasLostItsOrders) {
  const int64_t at = ahead();
  const config::Json record = config::Json::object({{"freeze_at", at}, {"purged", at + 5}});
  ASSERT_TRUE(remote_.operators->beat("aa", config::to_line(record), soon()));
  order(ClusterRequest::Kind::kLift);
  EXPECT_GT(orders().freeze.at, at);
  order(ClusterRequest::Kind::kPurge);
  ASSERT_EQ(orders().purges.size(), 1U);
  EXPECT_GT(orders().purges.front().id, at + 5) << "the mount would acknowledge it unheard";
}

/// A cluster in which another server takes the place of the one that has done what was asked, once.
class FailsOver final : public remote::ForwardingIndex, public remote::ForwardingOperators {
 public:
  explicit FailsOver(const remote::Remote& inner)
      : ForwardingIndex(inner.index), ForwardingOperators(inner.operators) {}
  uint64_t server_changes() const override { return changes; }
  Result<void> confirm_server(Deadline) override {
    if (asked++ == 0) ++changes;
    return {};
  }
  Result<std::vector<remote::ScopeInformation>> list_scopes(size_t, Deadline) override {
    return std::vector<remote::ScopeInformation>{{.id = "5c0be", .family = "fxgraph", .text = ""}};
  }
  Result<remote::PurgeReport> purge(const remote::ScopeId&, const std::function<bool(const codec::Entry&)>&, bool,
                                    Deadline) override {
    const uint64_t gone = purges++ == 0 ? entries : 0;
    return remote::PurgeReport{
        .looked_at = gone + others, .unknown = others, .selected = gone, .bytes = gone, .removed = gone, .paths = {}};
  }
  uint64_t changes = 0;
  int asked = 0;
  uint64_t entries = 0;
  uint64_t others = 0;
  int purges = 0;
};

TEST_F(Numbers, APurgeBeginsAnewAtAnotherServer) {
  FailsOver cluster(remote_);
  ClusterRequest request;
  request.kind = ClusterRequest::Kind::kPurge;
  request.dry_run = false;
  ASSERT_TRUE(run_cluster_request(cluster, cluster, request, [] { return false; }));
  EXPECT_EQ(cluster.asked, 2);
  EXPECT_EQ(orders().purges.size(), 2U) << "the first order may be lost";
  request.kind = ClusterRequest::Kind::kFreeze;
  cluster.asked = 0;
  const int64_t before = orders().freeze.at;
  ASSERT_TRUE(run_cluster_request(cluster, cluster, request, [] { return false; }));
  EXPECT_EQ(cluster.asked, 2);
  EXPECT_GT(orders().freeze.at, before);
}

TEST_F(Numbers, OfAPurgeThatBeganAnewHoldForAllItsTries) {
  FailsOver cluster(remote_);
  cluster.entries = 5;
  cluster.others = 2;
  ClusterRequest request;
  request.kind = ClusterRequest::Kind::kPurge;
  request.dry_run = false;
  const auto done = run_cluster_request(cluster, cluster, request, [] { return false; });
  ASSERT_TRUE(done) << done.error().what();
  EXPECT_EQ(done->at("removed"), 5);
  EXPECT_EQ(done->at("selected"), 5);
  EXPECT_EQ(done->at("looked_at"), 7);
  EXPECT_EQ(done->at("unknown"), 2) << "those that stay are there at each try";
  EXPECT_EQ(done->at("began_anew"), 1);
  const auto again = run_cluster_request(cluster, cluster, request, [] { return false; });
  EXPECT_EQ(again->at("removed"), 0);
  EXPECT_FALSE(again->contains("began_anew"));
}

TEST_F(Numbers, ThatNoClockSaysAreNobodys) {
  const config::Json record = config::Json::object({{"freeze_at", INT64_MAX}, {"purged", UINT64_MAX}});
  ASSERT_TRUE(remote_.operators->beat("aa", config::to_line(record), soon()));
  order(ClusterRequest::Kind::kLift);
  order(ClusterRequest::Kind::kPurge);
  const int64_t most = remote_.operators->read_orders(soon())->server_time + kMostAhead + 1;
  EXPECT_LE(orders().freeze.at, most);
  EXPECT_LE(orders().purges.front().id, most);
}

TEST(ClusterRequest, ComesBackAsItWas) {
  ClusterRequest request;
  request.kind = ClusterRequest::Kind::kPurge;
  request.by = "root@host";
  request.selection = selection();
  request.torch = "2.9.0";
  request.older_than = std::chrono::seconds(60);
  request.dry_run = false;
  request.acknowledged = Milliseconds(1500);
  const auto back = cluster_request(to_json(request));
  ASSERT_TRUE(back) << back.error().to_string();
  EXPECT_EQ(back->kind, request.kind);
  EXPECT_EQ(back->selection, request.selection);
  EXPECT_EQ(back->torch, request.torch);
  EXPECT_EQ(back->older_than, request.older_than);
  EXPECT_FALSE(back->dry_run);
  EXPECT_EQ(back->acknowledged, request.acknowledged);
  request.selection.scopes = {"0123"};
  EXPECT_EQ(cluster_request(to_json(request)).error().code(), ErrorCode::kInvalid);
  request.selection = {};
  request.selection.families = {"fxgrap"};
  EXPECT_NE(cluster_request(to_json(request)).error().what().find("did you mean fxgraph?"), std::string::npos);
}

}  // namespace
}  // namespace inductorfs::mount
