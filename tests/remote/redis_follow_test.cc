// SPDX-License-Identifier: Apache-2.0
// What following costs the server: commands and connections of a mount that only listens.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include "redis_fixture.h"

namespace inductorfs::remote {
namespace {

using Scopes = std::vector<std::pair<ScopeId, Position>>;

class RedisFollow : public RedisFixture {
 protected:
  /// Calls by command, those of the test itself left out.
  std::map<std::string, uint64_t> calls() {
    std::map<std::string, uint64_t> found;
    std::string text = run({"INFO", "commandstats"}).text;
    const std::string before = "cmdstat_";
    const std::string after = ":calls=";
    for (size_t at = text.find(before); at != std::string::npos; at = text.find(before, at)) {
      at += before.size();
      const size_t end = text.find(after, at);
      const std::string name = text.substr(at, end - at);
      if (name != "info" && name != "client|list" && name != "client|setname") {
        found[name] = std::stoull(text.substr(end + after.size()));
      }
    }
    return found;
  }
  static uint64_t sum(const std::map<std::string, uint64_t>& calls) {
    uint64_t all = 0;
    for (const auto& [name, count] : calls) all += count;
    return all;
  }
  size_t connections() {
    const std::string list = run({"CLIENT", "LIST"}).text;
    return static_cast<size_t>(std::count(list.begin(), list.end(), '\n')) - 1;  // the test's own
  }
  template <typename F>
  static bool eventually(F&& condition) {
    const Deadline deadline = Deadline::after(Milliseconds(30'000));
    while (!condition()) {
      if (deadline.passed()) return false;
      std::this_thread::yield();
    }
    return true;
  }
  /// Publishes in as many scopes as a mount of one environment follows, and reads them to their ends.
  Scopes twelve_scopes() {
    Scopes scopes;
    for (int i = 0; i < 12; ++i) {
      const ScopeId id = "scope" + std::to_string(i);
      EXPECT_TRUE(remote.index->publish(group_of(id, {entry("a", "x")}), source, soon()));
      Follower follower(remote, id);
      follower.catch_up();
      scopes.emplace_back(id, follower.position);
    }
    return scopes;
  }
};

/// At a hundredth of the intervals a hundred times as many commands are allowed: one a second.
TEST_F(RedisFollow, AnIdleFollowerOfAllScopesAsksLessThanOnceASecond) {
  constexpr int kScale = 100;
  options.follow_rest /= kScale;
  options.head_interval /= kScale;
  reopen();
  const Scopes scopes = twelve_scopes();
  std::atomic<bool> stop = false;
  std::jthread follower([&] {
    while (!stop) (void)remote.index->wait_for_changes(scopes, Milliseconds(600), [&] { return stop.load(); });
  });
  ASSERT_TRUE(eventually([&] { return calls()["xread"] >= 2; }));
  const auto begin = calls();
  const SteadyTime since = std::chrono::steady_clock::now();
  ASSERT_TRUE(eventually([&, first = begin.at("xread")] { return calls()["xread"] >= first + 40; }));
  const auto end = calls();
  const auto lasted = std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
  stop = true;
  const double each_second = static_cast<double>(sum(end) - sum(begin)) / (lasted * kScale);
  EXPECT_LT(each_second, 1.0);
  EXPECT_GT(end.at("hmget"), begin.at("hmget")) << "heads are looked at all the same";
  EXPECT_GT(end.at("exists"), begin.at("exists"));
}

TEST_F(RedisFollow, ANewFollowerAsksOnceForEachScopeThatHasNoHistory) {
  constexpr uint64_t kScopes = 12;
  ASSERT_TRUE(remote.index->read_changes("first", {}, soon())) << "connects";
  const auto begin = calls();
  for (uint64_t i = 0; i < kScopes; ++i) {
    const auto delta = remote.index->read_changes("empty" + std::to_string(i), {}, soon());
    ASSERT_TRUE(delta);
    EXPECT_TRUE(delta->at_head);
    EXPECT_TRUE(delta->set.empty());
  }
  auto end = calls();
  EXPECT_EQ(end.at("hmget") - begin.at("hmget"), 2 * kScopes) << "the head, before and after";
  EXPECT_EQ(end["touch"], 0U) << "nothing is there to be kept";
}

TEST_F(RedisFollow, NewsOfOneScopeCostNothingForTheOthers) {
  Scopes scopes = twelve_scopes();
  ASSERT_TRUE(remote.index->wait_for_changes(scopes, Milliseconds(1000), [] { return false; }));
  auto other = std::move(remote);
  reopen();
  constexpr uint64_t kNews = 20;
  const auto begin = calls();
  for (uint64_t i = 0; i < kNews; ++i) {
    ASSERT_TRUE(
        remote.index->publish(group_of(scopes[3].first, {entry("f" + std::to_string(i), "x")}), source, soon()));
    const auto moved = other.index->wait_for_changes(scopes, Milliseconds(60'000), [] { return false; });
    ASSERT_TRUE(moved);
    ASSERT_EQ(*moved, std::vector<ScopeId>{scopes[3].first});
    const auto delta = other.index->read_changes(scopes[3].first, scopes[3].second, soon());
    ASSERT_TRUE(delta);
    EXPECT_TRUE(delta->at_head) << "no second read to find that there is nothing more";
    scopes[3].second = delta->position;
  }
  const auto end = calls();
  const auto grew = [&](const char* name) {
    const auto was = begin.find(name);
    return end.at(name) - (was == begin.end() ? 0 : was->second);
  };
  EXPECT_LE(grew("xread"), 2 * kNews + 3);
  EXPECT_LE(grew("hmget"), 2 * kNews + 30) << "two for each read, and the looks at all heads in between";
}

TEST_F(RedisFollow, ScopesWithoutHistoryAreLookedAtTogether) {
  options.head_interval = Milliseconds(50);
  reopen();
  Scopes scopes;
  for (int i = 0; i < 12; ++i) scopes.emplace_back("empty" + std::to_string(i), Position{});
  const auto wait = [&](Milliseconds most) {
    return remote.index->wait_for_changes(scopes, most, [] { return false; });
  };
  ASSERT_TRUE(wait(Milliseconds(200)));
  EXPECT_FALSE(calls().contains("hmget"));
  std::ranges::copy_n(twelve_scopes().begin(), 2, scopes.begin());
  ASSERT_TRUE(wait(Milliseconds(100)));
  const auto begin = calls();
  const auto moved = wait(Milliseconds(500));
  ASSERT_TRUE(moved);
  EXPECT_TRUE(moved->empty());
  const auto end = calls();
  EXPECT_GT(end.at("hmget"), begin.at("hmget"));
  EXPECT_EQ(end.at("hmget") - begin.at("hmget"), 2 * (end.at("exists") - begin.at("exists")));

  // What XREAD cannot tell: the log of that history was evicted.
  run({"HSET", ScopeKeys("ifs1", scopes[7].first).meta, "gen", "3", "nonce", "of another mount"});
  const auto found = wait(Milliseconds(60'000));
  ASSERT_TRUE(found);
  EXPECT_EQ(*found, std::vector<ScopeId>{scopes[7].first});
}

TEST_F(RedisFollow, AServerThatWasEmptiedIsNoticedAfterOneRest) {
  options.follow_rest = Milliseconds(50);
  options.head_interval = Milliseconds(3'600'000);
  reopen();
  const Scopes scopes = twelve_scopes();
  ASSERT_TRUE(remote.index->wait_for_changes(scopes, Milliseconds(1000), [] { return false; }));
  run({"FLUSHALL"});
  const auto moved = remote.index->wait_for_changes(scopes, Milliseconds(60'000), [] { return false; });
  ASSERT_TRUE(moved);
  EXPECT_EQ(moved->size(), scopes.size());
}

TEST_F(RedisFollow, ALogThatBeganAnewBelowIsNoticedAtTheNextLookAtTheHeads) {
  options.follow_rest = Milliseconds(20);
  options.head_interval = Milliseconds(200);
  reopen();
  publish({entry("a", "x")});
  publish({entry("b", "x")});
  Follower follower(remote, scope);
  follower.catch_up();
  const Scopes scopes = {{scope, follower.position}};
  ASSERT_TRUE(remote.index->wait_for_changes(scopes, Milliseconds(1000), [] { return false; }));
  run({"DEL", keys.meta, keys.index, keys.log});
  publish({entry("c", "x")});
  const auto moved = remote.index->wait_for_changes(scopes, Milliseconds(60'000), [] { return false; });
  ASSERT_TRUE(moved);
  EXPECT_EQ(*moved, std::vector<ScopeId>{scope});
}

TEST_F(RedisFollow, AScopeThatLostItsMetaHasNotMovedAndCostsNoMoreThanBefore) {
  options.follow_rest = Milliseconds(50);
  options.head_interval = Milliseconds(3'600'000);
  reopen();
  Scopes scopes = twelve_scopes();
  const auto wait = [&](Milliseconds most) {
    return remote.index->wait_for_changes(scopes, most, [] { return false; });
  };
  ASSERT_TRUE(wait(Milliseconds(200)));
  const ScopeKeys first("ifs1", scopes[3].first);
  const ScopeKeys second("ifs1", scopes[5].first);
  Result<std::vector<ScopeId>> moved = std::vector<ScopeId>();
  const auto asks_the_log = [&] {
    const uint64_t asked = calls()["xrevrange"];
    return eventually([&] {
      moved = wait(Milliseconds(400));
      return !moved || !moved->empty() || calls()["xrevrange"] > asked;
    });
  };
  run({"DEL", first.meta});
  ASSERT_TRUE(asks_the_log());
  ASSERT_TRUE(moved);
  EXPECT_TRUE(moved->empty()) << "its log says that nothing has changed";
  run({"DEL", second.meta, second.log});
  moved = wait(Milliseconds(60'000));
  ASSERT_TRUE(moved);
  EXPECT_EQ(*moved, std::vector<ScopeId>{scopes[5].first}) << "nothing names its history any more";
  Follower follower(remote, scopes[5].first);
  follower.catch_up();
  EXPECT_TRUE(follower.has("a"));
  scopes[5].second = follower.position;

  ASSERT_TRUE(asks_the_log());
  const auto begin = calls();
  moved = wait(Milliseconds(1000));
  ASSERT_TRUE(moved);
  EXPECT_TRUE(moved->empty());
  const auto end = calls();
  EXPECT_EQ(end.at("hmget"), begin.at("hmget"));
  EXPECT_EQ(end.at("xrevrange"), begin.at("xrevrange"));
  EXPECT_GT(end.at("exists"), begin.at("exists"));

  for (const size_t place : {3U, 5U}) {
    auto& [id, position] = scopes[place];
    ASSERT_TRUE(remote.index->publish(group_of(id, {entry("b", "x")}), source, soon()));
    moved = wait(Milliseconds(60'000));
    ASSERT_TRUE(moved);
    EXPECT_EQ(*moved, std::vector<ScopeId>{id});
    Follower reader(remote, id);
    reader.catch_up();
    EXPECT_EQ(reader.entries.size(), 2U);
    position = reader.position;
  }
  run({"DEL", first.meta});
  ASSERT_TRUE(wait(Milliseconds(200)));
  run({"FLUSHALL"});
  moved = wait(Milliseconds(60'000));
  ASSERT_TRUE(moved);
  EXPECT_EQ(moved->size(), scopes.size());
}

TEST_F(RedisFollow, AnIdleMountKeepsThreeConnectionsAtMost) {
  options.follow_rest = Milliseconds(20);
  options.idle_lifetime = Milliseconds(100);
  reopen();
  const Scopes scopes = twelve_scopes();
  {
    std::vector<std::jthread> busy;
    for (int i = 0; i < 6; ++i) {
      busy.emplace_back([&, i] {
        for (int k = 0; k < 20; ++k) {
          (void)fetch_error(codec::digest_of("x"), soon());
          (void)remote.index->read_changes(scopes[static_cast<size_t>(i)].first, {}, soon());
        }
      });
    }
  }
  std::atomic<bool> stop = false;
  std::jthread follower([&] {
    while (!stop) (void)remote.index->wait_for_changes(scopes, Milliseconds(600), [&] { return stop.load(); });
  });
  EXPECT_TRUE(eventually([&] { return connections() <= 3; })) << run({"CLIENT", "LIST"}).text;
  const uint64_t opened = count("remote.connections_opened");
  EXPECT_EQ(fetch_error(entry("a", "x").digest, soon()), std::nullopt);
  EXPECT_EQ(count("remote.connections_opened"), opened) << "a lookup finds one that is open";
  stop = true;
}

}  // namespace
}  // namespace inductorfs::remote
