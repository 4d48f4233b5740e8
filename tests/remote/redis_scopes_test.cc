// SPDX-License-Identifier: Apache-2.0
// What scopes stand for, as a real server keeps it: lifetime, limits, and values that others have put there.
#include <gtest/gtest.h>

#include "redis_fixture.h"
#include "remote/formats/scope_text.h"

namespace inductorfs::remote {
namespace {

class RedisScopes : public RedisFixture {
 protected:
  static ScopeInformation scope_of(const std::string& text) {
    return {codec::digest_of(text).to_hex(), "triton_kernel", text};
  }
  [[nodiscard]] std::string about(const ScopeId& id) const { return ScopeKeys(options.prefix, id).about; }
  [[nodiscard]] std::string registry() const { return scope_registry_key(options.prefix); }
  std::vector<ScopeInformation> listed(size_t limit = 1'000) {
    auto scopes = remote.index->list_scopes(limit, soon());
    EXPECT_TRUE(scopes) << scopes.error().to_string();
    return scopes.value_or(std::vector<ScopeInformation>());
  }
  void announce(const std::string& text) {
    const auto announced = remote.index->announce_scope(scope_of(text), soon());
    ASSERT_TRUE(announced) << announced.error().to_string();
  }
};

TEST_F(RedisScopes, TheTextHasALifetimeAndTheRegistryNoneThatCouldEvictIt) {
  announce("a");
  const auto left = run({"PTTL", about(scope_of("a").id)}).integer;
  EXPECT_GT(left, 29LL * 24 * 3600 * 1000);
  EXPECT_LE(left, 30LL * 24 * 3600 * 1000);
  EXPECT_EQ(run({"PTTL", registry()}).integer, -1);
}

TEST_F(RedisScopes, OnceAProcessAndScopeGoesOverTheWire) {
  announce("a");
  (void)run({"DEL", about(scope_of("a").id)});
  announce("a");
  EXPECT_EQ(run({"EXISTS", about(scope_of("a").id)}).integer, 0);
  EXPECT_EQ(count("remote.scopes_announced"), 1U);
  EXPECT_TRUE(listed().empty()) << "its time was over";
  EXPECT_EQ(count("remote.bad_scopes"), 0U);
}

TEST_F(RedisScopes, ReadingAScopeRenewsWhatWasAnnouncedOfIt) {
  options.blob_lifetime = std::chrono::seconds(1);
  reopen();
  announce("a");
  (void)run({"DEL", about(scope_of("a").id), registry()});
  const Deadline deadline = soon();
  while (listed().empty() && !deadline.passed()) ASSERT_TRUE(remote.index->read_changes(scope_of("a").id, {}, soon()));
  EXPECT_EQ(listed(), std::vector<ScopeInformation>{scope_of("a")});
  EXPECT_EQ(count("remote.scopes_announced"), 2U);
}

TEST_F(RedisScopes, ScopesThatNobodyAnnouncesAnyMoreLeaveTheRegistry) {
  const std::string old = scope_of("old").id;
  (void)run({"ZADD", registry(), "1000", old});
  announce("new");
  EXPECT_EQ(run({"ZCARD", registry()}).integer, 1);
  EXPECT_EQ(listed(), std::vector<ScopeInformation>{scope_of("new")});
}

TEST_F(RedisScopes, TheRegistryHasALimitAndTheOldestGo) {
  std::string fill = "for i = 1, " + std::to_string(kAnnouncedScopesLimit) +
                     " do redis.call('ZADD', KEYS[1], 1e15 + i, string.format('%064d', i)) end";
  (void)run({"EVAL", fill, "1", registry()});
  (void)run({"ZADD", registry(), "2e15", std::string(64, 'f')});
  announce("a");
  EXPECT_EQ(run({"ZCARD", registry()}).integer, static_cast<int64_t>(kAnnouncedScopesLimit));
  EXPECT_EQ(run({"ZSCORE", registry(), std::string(64, 'f')}).kind, redis::Reply::Kind::kString);
}

TEST_F(RedisScopes, ListsTheNewestFirstAndNoMoreThanAsked) {
  const auto member = [&](const std::string& text, const char* time) {
    const ScopeInformation given = scope_of(text);
    (void)run({"ZADD", registry(), time, given.id});
    (void)run({"SET", about(given.id), encode_information(given)});
  };
  member("b", "2");
  member("c", "3");
  member("a", "1");
  for (int i = 0; i < 100; ++i) (void)run({"ZADD", registry(), "4", codec::digest_of(std::to_string(i)).to_hex()});
  EXPECT_EQ(listed(), (std::vector<ScopeInformation>{scope_of("c"), scope_of("b"), scope_of("a")}))
      << "ids without a text take no place of others";
  EXPECT_EQ(listed(2), (std::vector<ScopeInformation>{scope_of("c"), scope_of("b")}));
  EXPECT_TRUE(listed(0).empty());
}

TEST_F(RedisScopes, NothingOfWhatOthersPutThereIsBelieved) {
  announce("good");
  const auto place = [&](const std::string& text, const std::string& value) {
    (void)run({"ZADD", registry(), "5e15", scope_of(text).id});
    (void)run({"SET", about(scope_of(text).id), value});
  };
  place("1", encode_information(scope_of("another text")));
  place("2", std::string(3'000'000, 'x'));
  place("3", "x");
  ScopeInformation loud = scope_of("\x1b[2J");
  place(loud.text, encode_information(loud));
  (void)run({"ZADD", registry(), "5e15", scope_of("4").id});
  (void)run({"LPUSH", about(scope_of("4").id), "a list"});
  (void)run({"ZADD", registry(), "5e15", "}:b:{"});
  (void)run({"ZADD", registry(), "5e15", std::string(100'000, 'a')});
  EXPECT_EQ(listed(), std::vector<ScopeInformation>{scope_of("good")});
  EXPECT_EQ(count("remote.bad_scopes"), 7U);
  (void)run({"DEL", registry()});
  (void)run({"SET", registry(), "no set"});
  const auto scopes = remote.index->list_scopes(10, soon());
  ASSERT_FALSE(scopes);
  EXPECT_EQ(scopes.error().code(), ErrorCode::kInternal);
  EXPECT_TRUE(remote.operators->health().reachable);
}

TEST_F(RedisScopes, ARefusalIsToldAndTheNextCallTriesAgain) {
  (void)run({"ACL", "SETUSER", "default", "-set"});
  const auto refused = remote.index->announce_scope(scope_of("a"), soon());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kNotPermitted);
  EXPECT_EQ(count("remote.announce_failed"), 1U);
  (void)run({"ACL", "SETUSER", "default", "+set"});
  announce("a");
  EXPECT_EQ(listed().size(), 1U);
}

TEST_F(RedisScopes, TheWordsInTheDocumentsAreRightsEnough) {
  (void)run({"ACL", "SETUSER", "default", "resetkeys", "-@all", "+acl", "+client|setname", "+set", "+eval", "+time",
             "+zadd", "+zremrangebyscore", "+zremrangebyrank", "+zrange", "+getrange", "~ifs1:{*}:about",
             "~ifs1:scopes"});
  reopen();
  announce("a");
  EXPECT_EQ(listed().size(), 1U);
}

TEST_F(RedisScopes, AHungServerCostsTheDeadlineOnly) {
  announce("a");
  server->freeze();
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(remote.index->announce_scope(scope_of("b"), Deadline::after(Milliseconds(100))));
  EXPECT_FALSE(remote.index->list_scopes(10, Deadline::after(Milliseconds(100))));
  EXPECT_LT(std::chrono::steady_clock::now() - start, Milliseconds(1500));
  server->thaw();
}

TEST_F(RedisScopes, ACancelledCallEndsSoonAndTheOtherHandleGoesOn) {
  publish({entry("a", "x")});
  int asked = -1;
  const auto view = remote.index->index_until([&] { return asked >= 0 && ++asked > 2; });
  ASSERT_NE(view, remote.index);
  ASSERT_TRUE(view->read_changes(scope, {}, soon()));
  server->freeze();
  asked = 0;  // the first questions come before anything is sent
  const auto start = std::chrono::steady_clock::now();
  const auto read = view->read_changes(scope, {}, soon());
  asked = 0;
  const auto published = view->publish(group_of(scope, {entry("b", "x")}), source, soon());
  EXPECT_LT(std::chrono::steady_clock::now() - start, Milliseconds(1000));
  server->thaw();
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code(), ErrorCode::kUnavailable);
  ASSERT_FALSE(published);
  EXPECT_EQ(published.error().code(), ErrorCode::kUnavailable);
  EXPECT_EQ(count("remote.breaker_opened"), 0U) << "not the server's fault";
  EXPECT_TRUE(remote.index->read_changes(scope, {}, soon()));
}

}  // namespace
}  // namespace inductorfs::remote
