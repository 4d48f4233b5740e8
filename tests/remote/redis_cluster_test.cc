// SPDX-License-Identifier: Apache-2.0
// A Redis Cluster whose slots move while it is used. What every remote does is in tests/contract; shards that fail are
// in redis_failover_test.cc.
#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "cluster_fixture.h"
#include "gather_fixture.h"
#include "inductorfs/remote/rights.h"
#include "support/redis_server.h"
#include "support/scripted_server.h"

namespace inductorfs::remote {
namespace {

using inductorfs::testing::ScriptedClient;
using inductorfs::testing::ScriptedServer;

class RedisClusterRemote : public ClusterFixture {
 protected:
  void SetUp() override {
    if (!inductorfs::testing::RedisServer::available()) INDUCTORFS_LACKS("redis-server");
    open_on(shared());
  }
  /// One for all tests; each leaves it whole.
  static RedisCluster& shared() {
    static RedisCluster running({.masters = 3, .replicas = 0});
    return running;
  }
};

TEST_F(RedisClusterRemote, SpreadsBlobsAndPiecesAndBringsThemBack) {
  std::vector<codec::Digest> digests = publish_blobs("scope", 60);
  digests.push_back(source.add(test_bytes(3 * kPieceBytes + 5, 1)));
  ASSERT_TRUE(remote.index->publish(group_of("scope", {entry_of("large", digests.back())}), source, soon()));
  std::set<size_t> used;
  for (const auto& digest : digests) used.insert(servers->owner(slot_of_blob(digest)));
  EXPECT_EQ(used.size(), 3U);

  FakeSink sink;
  remote.blobs->fetch(digests, sink, soon());
  for (const auto& digest : digests) {
    EXPECT_EQ(sink.error_of(digest), std::nullopt);
    EXPECT_EQ(sink.frames[digest], source.frame(digest));
  }
  EXPECT_EQ(count("remote.redirects"), 0U) << "the map says where each is";
  EXPECT_EQ(count("remote.slot_maps"), 1U);
}

TEST_F(RedisClusterRemote, GathersFromAllShardsAndABlockThatMovesIsFound) {
  FramedSource framed;
  std::vector<codec::Digest> digests;
  std::vector<std::string> texts;
  std::set<size_t> used;
  for (uint32_t i = 0; i < 40; ++i) {
    texts.push_back(like_text(i));
    digests.push_back(framed.add(texts.back()));
    used.insert(servers->owner(slot_of_blob(digests.back())));
    ASSERT_TRUE(
        remote.index->publish(group_of("scope", {entry_of("g" + std::to_string(i), digests.back())}), framed, soon()));
  }
  ASSERT_EQ(used.size(), 3U);
  const auto report = remote.blobs->gather(digests, soon());
  ASSERT_TRUE(report) << report.error().to_string();
  EXPECT_EQ(report->blobs, 40U);
  EXPECT_LT(report->bytes_after * 4, report->bytes_before);
  EXPECT_EQ(fetched(remote, digests), texts);
  EXPECT_EQ(count("remote.fetch_blocks"), 1U);

  std::string all;
  for (const std::string& text : texts) all += text;
  const uint16_t slot = slot_of_blob(codec::digest_of(all));
  const size_t from = servers->owner(slot);
  servers->move(slot, (from + 1) % 3);
  const auto anew = open();
  EXPECT_EQ(fetched(anew, digests), texts);
  servers->move(slot, from);
}

TEST_F(RedisClusterRemote, FollowsAScopeThatHasMoved) {
  const ScopeId id = scope_at(0);
  ASSERT_TRUE(publish(id, "a", "1"));
  Follower follower(remote, id);
  follower.catch_up();
  servers->move(slot_of_scope(id), 1);

  EXPECT_EQ(*publish(id, "b", "2"), PublishOutcome::kPublished);
  EXPECT_GE(count("remote.redirects"), 1U);
  const uint64_t before = count("remote.redirects");
  follower.catch_up();
  EXPECT_TRUE(follower.has("a") && follower.has("b"));
  EXPECT_EQ(follower.resets, 0) << "the history goes on at the other server";
  EXPECT_EQ(*publish(id, "c", "3"), PublishOutcome::kPublished);
  EXPECT_EQ(count("remote.redirects"), before) << "the move is known now";
}

/// The cursor of a scan means nothing to the other server: it would skip what lies before that place in its own table.
TEST_F(RedisClusterRemote, PurgesAllOfAScopeThatMovesMeanwhile) {
  constexpr uint64_t kEntries = 3000;
  const ScopeId id = scope_at(0);
  for (uint64_t from = 0; from < kEntries; from += 500) {
    std::vector<codec::Entry> entries;
    for (uint64_t i = from; i < from + 500; ++i) entries.push_back(entry_of(std::to_string(i), source.add("bytes")));
    ASSERT_TRUE(remote.index->publish(group_of(id, std::move(entries)), source, soon()));
  }
  for (const bool dry_run : {true, false}) {
    size_t asked = 0;
    const auto selects = [&](const codec::Entry&) {
      if (++asked == 700) servers->move(slot_of_scope(id), dry_run ? 1 : 2);  // within the second page
      return true;
    };
    const auto report = remote.operators->purge(id, selects, dry_run, soon());
    ASSERT_TRUE(report) << report.error().to_string();
    EXPECT_EQ(report->selected, kEntries);
    EXPECT_EQ(report->looked_at, kEntries);
    EXPECT_EQ(report->removed, dry_run ? 0 : kEntries);
  }
  EXPECT_EQ(servers->at_slot(slot_of_scope(id), {"HLEN", keys_of(id).index}).integer, 0);
}

TEST_F(RedisClusterRemote, FindsABlobThatIsBeingMoved) {
  const codec::Digest digest = publish_blobs("scope", 1).front();
  const uint16_t slot = slot_of_blob(digest);
  const size_t to = (servers->owner(slot) + 1) % 3;
  servers->begin_move(slot, to, 1000);
  EXPECT_EQ(fetch_error(digest), std::nullopt) << "the old server says ASK";
  const uint64_t redirects = count("remote.redirects");
  EXPECT_GE(redirects, 1U);
  EXPECT_EQ(fetch_error(digest), std::nullopt);
  EXPECT_GT(count("remote.redirects"), redirects) << "an ASK says nothing about the next command";
  servers->end_move(slot, to);
  EXPECT_EQ(fetch_error(digest), std::nullopt) << "the old server says MOVED";
  const uint64_t after = count("remote.redirects");
  EXPECT_EQ(fetch_error(digest), std::nullopt);
  EXPECT_EQ(count("remote.redirects"), after);
}

TEST_F(RedisClusterRemote, AScopeWhoseKeysAreInTwoServersIsPutOffAndNotBroken) {
  const ScopeId id = scope_at(2);
  ASSERT_TRUE(publish(id, "a", "1"));
  const uint16_t slot = slot_of_scope(id);
  servers->begin_move(slot, 0, 1);
  Result<PublishOutcome> outcome;
  EXPECT_LT(time_of([&] { outcome = publish(id, "b", "2"); }), Milliseconds(5000));
  ASSERT_FALSE(outcome) << "TRYAGAIN, for as long as the keys are in two places";
  EXPECT_EQ(outcome.error().code(), ErrorCode::kInternal)
      << "this group waits, not the queue: " << outcome.error().what();
  servers->end_move(slot, 0);
  outcome = publish(id, "b", "2");
  ASSERT_TRUE(outcome) << outcome.error().to_string();
  Follower follower(remote, id);
  follower.catch_up();
  EXPECT_EQ(follower.entries.size(), 2U);
}

TEST_F(RedisClusterRemote, AWaiterIsWokenByTheServerThatHasTheScopeNow) {
  options.head_interval = Milliseconds(600'000);  // no look at the heads helps
  remote = open();
  const ScopeId id = scope_at(0);
  const ScopeId other = scope_at(1);
  ASSERT_TRUE(publish(id, "a", "1"));
  ASSERT_TRUE(publish(other, "a", "1"));
  Follower follower(remote, id);
  Follower follower_of_other(remote, other);
  for (const size_t at : {size_t{0}, size_t{1}, size_t{2}}) {
    if (at > 0) servers->move(slot_of_scope(id), at);
    follower.catch_up();
    follower_of_other.catch_up();
    Result<std::vector<ScopeId>> outcome;
    std::jthread waiter([&] {
      outcome = remote.index->wait_for_changes({{id, follower.position}, {other, follower_of_other.position}},
                                               Milliseconds(60'000), [] { return false; });
    });
    const auto listens = [&] {
      return servers->at(at, {"PUBSUB", "SHARDNUMSUB", keys_of(id).meta}).items.at(1).integer == 1;
    };
    ASSERT_TRUE(comes_right(listens)) << at;
    const auto writer = open();
    const auto published = writer.index->publish(
        group_of(id, {entry_of("later " + std::to_string(at), source.add("later"))}), source, soon());
    ASSERT_TRUE(published) << published.error().to_string();
    const auto took = time_of([&] { waiter.join(); });
    EXPECT_LT(took, Milliseconds(10'000));
    ASSERT_TRUE(outcome) << outcome.error().to_string();
    EXPECT_EQ(*outcome, std::vector<ScopeId>{id});
  }
}

TEST_F(RedisClusterRemote, AWaiterThatMayNotListenLooks) {
  for (size_t node = 0; node < 3; ++node) {
    servers->at(node, {"ACL", "SETUSER", "deaf", "on", "nopass", "~*", "+@all", "-ssubscribe", "-spublish"});
  }
  options.url.insert(options.url.find("//") + 2, "deaf@");
  options.head_interval = Milliseconds(600'000);
  remote = open();
  ASSERT_TRUE(publish("scope", "a", "1"));
  Follower follower(remote, "scope");
  follower.catch_up();
  Result<std::vector<ScopeId>> outcome;
  std::jthread waiter([&] {
    outcome =
        remote.index->wait_for_changes({{"scope", follower.position}}, Milliseconds(60'000), [] { return false; });
  });
  ASSERT_TRUE(publish("scope", "b", "2"));
  EXPECT_LT(time_of([&] { waiter.join(); }), Milliseconds(10'000));
  ASSERT_TRUE(outcome);
  EXPECT_EQ(*outcome, std::vector<ScopeId>{"scope"});
}

TEST_F(RedisClusterRemote, AReaderAndAWriterNeedNoMoreRightsThanTheirRolesHave) {
  for (const auto& [role, user] : {std::pair(Role::kConsumer, "reader"), std::pair(Role::kSweeper, "writer")}) {
    const std::string line = acl_line(role, options.prefix, user);
    for (size_t node = 0; node < 3; ++node) {
      servers->at(node, words_of(line));
      servers->at(node, {"ACL", "SETUSER", user, "nopass"});
      servers->at(node, {"ACL", "LOG", "RESET"});
    }
  }
  const std::string url = options.url;
  options.url.insert(options.url.find("//") + 2, "writer@");
  remote = open();
  const std::vector<codec::Digest> digests = publish_blobs("scope", 10);
  const auto writer = std::move(remote);
  options.url = url;
  options.url.insert(options.url.find("//") + 2, "reader@");
  options.head_interval = Milliseconds(600'000);
  options.read_only = true;
  remote = open();
  for (const codec::Digest& digest : digests) EXPECT_EQ(fetch_error(digest), std::nullopt);
  Follower follower(remote, "scope");
  follower.catch_up();
  EXPECT_EQ(follower.entries.size(), digests.size());
  Result<std::vector<ScopeId>> outcome;
  std::jthread waiter([&] {
    outcome =
        remote.index->wait_for_changes({{"scope", follower.position}}, Milliseconds(60'000), [] { return false; });
  });
  ASSERT_TRUE(comes_right([&] {
    return servers->at_slot(slot_of_scope("scope"), {"PUBSUB", "SHARDNUMSUB", keys_of("scope").meta})
               .items.at(1)
               .integer == 1;
  }));
  ASSERT_TRUE(writer.index->publish(group_of("scope", {entry_of("later", source.add("later"))}), source, soon()));
  waiter.join();
  EXPECT_TRUE(outcome);
  EXPECT_TRUE(writer.index->sweep("scope", true, soon())->ours);
  for (size_t node = 0; node < 3; ++node) {
    EXPECT_TRUE(servers->at(node, {"ACL", "LOG"}).items.empty())
        << servers->at(node, {"ACL", "LOG"}).items[0].items[7].text;
  }
}

TEST_F(RedisClusterRemote, AgreesInTheEndAlthoughSlotsMoveUnderLoad) {
  const ScopeId id = scope_at(0);
  std::atomic<bool> over = false;
  std::atomic<int> moves = 0;
  std::jthread mover([&] {
    for (size_t to = 1; !over; to = (to + 1) % 3, ++moves) servers->move(slot_of_scope(id), to);
  });
  std::jthread reader([&] {
    const auto mine = open();
    Follower follower(mine, id);
    while (!over) {
      if (auto delta = mine.index->read_changes(id, follower.position, soon())) follower.position = delta->position;
    }
  });
  constexpr int kEach = 150;
  std::vector<std::jthread> publishers;
  for (int p = 0; p < 2; ++p) {
    publishers.emplace_back([&, p] {
      const auto mine = open();
      FakeSource own;
      for (int i = 0; i < kEach; ++i) {
        const std::string text = std::to_string(p) + "/" + std::to_string(i);
        const auto group = group_of(id, {entry_of(text, own.add(text))});
        // What a mount's queue does with an error that passes.
        EXPECT_TRUE(comes_right([&] { return mine.index->publish(group, own, soon()).has_value(); })) << text;
      }
    });
  }
  for (auto& publisher : publishers) publisher.join();
  EXPECT_TRUE(comes_right([&] { return moves >= 5; }));
  over = true;
  mover.join();
  reader.join();
  Follower follower(remote, id);
  follower.catch_up();
  EXPECT_EQ(follower.entries.size(), 2U * kEach);
  EXPECT_EQ(follower.position.generation, 2U * kEach) << "each was published once";
  EXPECT_GE(count("remote.redirects"), 5U);
  for (const auto& [path, entry] : follower.entries) EXPECT_EQ(fetch_error(entry.digest), std::nullopt) << path;
}

TEST_F(RedisClusterRemote, ProbeNamesTheMasterThatAWarningIsAbout) {
  ASSERT_TRUE(remote.operators->probe(soon())->warnings.empty());
  servers->at(1, {"CONFIG", "SET", "maxmemory", "100mb"});
  const auto facts = remote.operators->probe(soon());
  servers->at(1, {"CONFIG", "SET", "maxmemory", "0"});
  ASSERT_TRUE(facts);
  ASSERT_EQ(facts->warnings.size(), 1U);
  EXPECT_NE(facts->warnings[0].find("127.0.0.1:" + std::to_string(servers->port(1)) + ": "), std::string::npos);
  EXPECT_EQ(facts->memory_limit, 0U) << "two of them have none";
}

TEST_F(RedisClusterRemote, AServerOfAClusterThatIsNamedAloneSaysHowToNameIt) {
  options.url = servers->server(0).url();
  const auto facts = open().operators->probe(soon());
  ASSERT_FALSE(facts);
  EXPECT_EQ(facts.error().code(), ErrorCode::kNotSupported);
  EXPECT_NE(facts.error().what().find("redis+cluster://"), std::string::npos) << facts.error().what();

  const uint16_t port = inductorfs::testing::free_port();
  inductorfs::testing::RedisServer single({.arguments = {"--port", std::to_string(port)}});
  options.url = "redis+cluster://127.0.0.1:" + std::to_string(port);
  const auto none = open().operators->probe(soon());
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code(), ErrorCode::kNotSupported);
  EXPECT_NE(none.error().what().find("write redis://"), std::string::npos) << none.error().what();
}

TEST_F(RedisClusterRemote, AFirstNodeThatIsDeadIsPassedBy) {
  const std::string dead = "127.0.0.1:" + std::to_string(inductorfs::testing::free_port());
  options.url = "redis+cluster://" + dead + ",127.0.0.1:" + std::to_string(servers->port(2));
  remote = open();
  EXPECT_TRUE(publish("scope", "a", "1"));
  EXPECT_TRUE(remote.operators->health().reachable);
}

TEST(RedisClusterOverTls, GreetsEachNodeWithThePasswordAndChecksItsName) {
  if (!inductorfs::testing::RedisServer::available()) INDUCTORFS_LACKS("redis-server");
  inductorfs::testing::RedisCluster servers({.masters = 3, .replicas = 0, .password = "hunter2", .tls = true});
  Counters counters;
  RemoteOptions options;
  options.url = servers.url();
  options.ca_file = servers.certificates().ca_file;
  options.without_progress = Milliseconds(2000);
  auto remote = open_redis(options, counters).value();
  FakeSource source;
  for (int i = 0; i < 20; ++i) {
    const std::string name = std::to_string(i);
    const auto outcome = remote.index->publish(group_of("scope", {entry_of(name, source.add(name))}), source, soon());
    ASSERT_TRUE(outcome) << outcome.error().to_string();
  }
  EXPECT_EQ(remote.operators->health().address.find("hunter2"), std::string::npos);

  options.ca_file =
      inductorfs::testing::make_certificates(servers.server(0).directory(), "stranger", "IP:127.0.0.1").ca_file;
  remote = open_redis(options, counters).value();
  const auto strangers = remote.operators->probe(soon());
  ASSERT_FALSE(strangers);
  EXPECT_EQ(strangers.error().code(), ErrorCode::kNotPermitted) << strangers.error().what();
}

/// A node that says what it likes. `port` is its own.
ScriptedServer::Script cluster_of_one(const std::atomic<uint16_t>& port, std::string answer, std::atomic<int>& asked) {
  return [&port, &asked, answer = std::move(answer)](ScriptedClient& client) {
    for (auto words = client.command(); !words.empty(); words = client.command()) {
      if (words[0] == "CLUSTER") {
        (void)client.send("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:" + std::to_string(port) + "\r\n");
      } else if (words[0] == "CLIENT" || words[0] == "ASKING") {
        (void)client.send("+OK\r\n");
      } else {
        ++asked;
        std::string text = answer;
        if (const size_t at = text.find("PORT"); at != std::string::npos) text.replace(at, 4, std::to_string(port));
        (void)client.send(text);
      }
    }
  };
}

TEST(HostileNode, SendsNobodyInCircles) {
  for (const char* answer : {"-MOVED 1 127.0.0.1:PORT\r\n", "-ASK 1 127.0.0.1:PORT\r\n", "-TRYAGAIN later\r\n",
                             "-CLUSTERDOWN no\r\n", "-MOVED 1 /etc/passwd:1\r\n", "-MOVED x\r\n"}) {
    std::atomic<uint16_t> port{0};
    std::atomic<int> asked{0};
    const ScriptedServer node(cluster_of_one(port, answer, asked));
    port = node.port();
    Counters counters;
    RemoteOptions options;
    options.url = "redis+cluster://127.0.0.1:" + std::to_string(port);
    auto remote = open_redis(options, counters).value();
    const codec::Digest digest = codec::digest_of("x");
    FakeSink sink;
    remote.blobs->fetch(std::span(&digest, 1), sink, soon());
    EXPECT_NE(sink.error_of(digest), std::nullopt) << answer;
    EXPECT_NE(sink.error_of(digest), ErrorCode::kCorrupt) << "which says something of the blob: " << answer;
    EXPECT_LE(asked, 8) << answer;
    EXPECT_FALSE(remote.index->read_changes("5c0be", {}, Deadline::after(Milliseconds(3000)))) << answer;
  }
}

TEST(HostileNode, ThatTellsNoMapIsSaid) {
  for (const char* answer : {"+OK\r\n", "*0\r\n", "*1\r\n:1\r\n", "-ERR what\r\n", "$3\r\nabc\r\n",
                             "*1\r\n*3\r\n:0\r\n:99999\r\n*2\r\n$1\r\na\r\n:1\r\n"}) {
    const ScriptedServer node(inductorfs::testing::always_answer(answer));
    Counters counters;
    RemoteOptions options;
    options.url = "redis+cluster://127.0.0.1:" + std::to_string(node.port());
    auto remote = open_redis(options, counters).value();
    EXPECT_FALSE(remote.operators->probe(Deadline::after(Milliseconds(3000)))) << answer;
    EXPECT_FALSE(remote.operators->health().last_error.empty());
  }
}

}  // namespace
}  // namespace inductorfs::remote
