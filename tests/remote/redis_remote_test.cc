// SPDX-License-Identifier: Apache-2.0
// Servers that are down, hung, restarted, secretive or no servers at all.
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "redis_fixture.h"
#include "remote/operations/redis_operations.h"
#include "support/patience.h"
#include "support/scripted_server.h"

namespace inductorfs::remote {
namespace {

using inductorfs::testing::always_answer;
using inductorfs::testing::ScriptedClient;
using inductorfs::testing::ScriptedServer;

using RedisRemote = RedisFixture;

template <typename F>
Milliseconds time_of(F&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - start);
}

/// Repeats what is refused while the breaker rests.
template <typename F>
bool comes_right(F&& works) {
  const Deadline deadline = Deadline::after(Milliseconds(15000));
  while (!deadline.passed()) {
    if (works()) return true;
    std::this_thread::yield();
  }
  return false;
}

TEST_F(RedisRemote, GoesOnAfterARestartWithoutAnError) {
  const auto held = entry("a", "x");
  publish({held});
  server->kill();
  server->start();
  EXPECT_EQ(fetch_error(held.digest, soon()), ErrorCode::kNotFound) << "the idle connection is dead, the server not";
  publish({held});
  EXPECT_EQ(fetch_error(held.digest, soon()), std::nullopt);
  EXPECT_EQ(count("remote.breaker_opened"), 0U);
}

TEST_F(RedisRemote, AnswersAtOnceWhileTheServerIsDownAndComesBackAfterItsRest) {
  const auto held = entry("a", "x");
  publish({held});
  server->kill();
  EXPECT_EQ(fetch_error(held.digest, soon()), ErrorCode::kUnavailable);
  EXPECT_FALSE(remote.operators->health().reachable);
  EXPECT_FALSE(remote.operators->health().last_error.empty());
  const Milliseconds took = time_of([&] {
    for (int i = 0; i < 1000; ++i) EXPECT_EQ(fetch_error(held.digest, soon()), ErrorCode::kUnavailable);
  });
  EXPECT_LT(took, Milliseconds(2000));
  EXPECT_GE(count("remote.breaker_refused"), 900U);
  EXPECT_FALSE(remote.index->read_changes(scope, {}, soon()));
  EXPECT_FALSE(remote.index->wait_for_changes({{scope, {}}}, Milliseconds(5000), [] { return false; }));
  server->start();
  EXPECT_TRUE(comes_right([&] { return fetch_error(held.digest, soon()) == ErrorCode::kNotFound; }));
  EXPECT_TRUE(remote.operators->health().reachable);
  EXPECT_TRUE(remote.operators->health().last_error.empty());
}

TEST_F(RedisRemote, AHungServerCostsOneTimeWithoutProgress) {
  constexpr Milliseconds kPatience{1000 * testing::kSlowness};  // the server has it, too, while it answers
  options.without_progress = kPatience;
  reopen();
  const auto held = entry("a", "x");
  publish({held});
  ASSERT_EQ(fetch_error(held.digest, soon()), std::nullopt);
  server->freeze();
  const Milliseconds first = time_of([&] { EXPECT_EQ(fetch_error(held.digest, soon()), ErrorCode::kTimedOut); });
  EXPECT_GE(first, kPatience);
  EXPECT_LT(first, kPatience * 5 / 2);
  const Milliseconds second = time_of([&] { EXPECT_EQ(fetch_error(held.digest, soon()), ErrorCode::kUnavailable); });
  EXPECT_LT(second, kPatience / 2);
  server->thaw();
  EXPECT_TRUE(comes_right([&] { return fetch_error(held.digest, soon()) == std::nullopt; }));
}

TEST_F(RedisRemote, AFetchKeepsItsDeadline) {
  server->freeze();
  const Milliseconds took = time_of(
      [&] { EXPECT_EQ(fetch_error(codec::digest_of("x"), Deadline::after(Milliseconds(100))), ErrorCode::kTimedOut); });
  server->thaw();
  EXPECT_LT(took, Milliseconds(1000));
  EXPECT_EQ(fetch_error(codec::digest_of("x"), Deadline::after(Milliseconds(0))), ErrorCode::kTimedOut);
}

TEST_F(RedisRemote, AFetchDoesNotWaitForAFollower) {
  std::atomic<bool> stop = false;
  std::jthread follower([&] {
    (void)remote.index->wait_for_changes({{scope, {}}}, Milliseconds(60000), [&] { return stop.load(); });
  });
  for (int i = 0; i < 50; ++i) EXPECT_EQ(fetch_error(codec::digest_of("x"), soon()), ErrorCode::kNotFound);
  stop = true;
}

TEST_F(RedisRemote, AWaiterThatLosesItsServerSaysSo) {
  Result<std::vector<ScopeId>> outcome;
  std::jthread follower([&] {
    outcome = remote.index->wait_for_changes({{scope, {}}}, Milliseconds(60000), [] { return false; });
  });
  ASSERT_TRUE(comes_right([&] { return run({"CLIENT", "LIST"}).text.find("cmd=xread") != std::string::npos; }));
  server->kill();
  follower.join();
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code(), ErrorCode::kUnavailable);
}

TEST_F(RedisRemote, OrdersNothingThatIsReadOnly) {
  const auto held = entry("a", "x");
  publish({held});
  options.read_only = true;
  reopen();
  const auto all = [](const codec::Entry&) { return true; };
  const auto is_refused = [](const auto& outcome) {
    return !outcome && outcome.error().code() == ErrorCode::kInvalid &&
           outcome.error().what().find("is --read-only") != std::string::npos &&
           outcome.error().what().find("name the cluster with --remote") != std::string::npos;
  };
  EXPECT_TRUE(is_refused(remote.operators->replace_orders("", "an order", soon())));
  EXPECT_TRUE(is_refused(remote.operators->purge(scope, all, false, soon())));
  EXPECT_TRUE(is_refused(remote.operators->remove_blob(held.digest, soon())));
  EXPECT_EQ(remote.operators->purge(scope, all, true, soon())->selected, 1U) << "counting changes nothing";
  EXPECT_EQ(remote.operators->read_orders(soon())->text, "");
  EXPECT_EQ(fetch_error(held.digest, soon()), std::nullopt);
}

/// kInvalid would be the command's fault: the publisher would drop what it was to publish.
TEST_F(RedisRemote, TakesAMissingSecretForARefusal) {
  start({});
  options.url = "unix://" + server->socket_path();
  options.password_file = "/the/password";
  for (const Error& why : {Error(ErrorCode::kNotFound, ""), Error(ErrorCode::kNotPermitted, "others may write to it"),
                           Error(ErrorCode::kInvalid, "no regular file")}) {
    options.files = [&why](const std::string&) -> Result<std::string> { return fail(why); };
    reopen();
    const auto answer = remote.operators->probe(soon());
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code(), ErrorCode::kNotPermitted) << answer.error().what();
  }
  options.files = [](const std::string&) { return Result<std::string>(""); };
  reopen();
  EXPECT_EQ(remote.operators->probe(soon()).error().code(), ErrorCode::kNotPermitted) << "an empty file";
}

TEST_F(RedisRemote, TakesItsPasswordFromAFileAndNeverShowsIt) {
  start({.password = "hunter2"});
  const std::string file = server->directory() + "/password";
  std::ofstream(file) << "hunter2\n";
  options.url = "unix://" + server->socket_path();
  options.password_file = file;
  reopen();
  EXPECT_TRUE(remote.operators->probe(soon()));
  std::ofstream(file) << "wr0ng-secret\n";
  reopen();
  const auto refused = remote.operators->probe(soon());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kNotPermitted);
  options.url = "unix://ann:wr0ng-secret@" + server->socket_path();
  options.password_file.clear();
  reopen();
  EXPECT_FALSE(remote.operators->probe(soon()));
  const Operators::Health health = remote.operators->health();
  for (const std::string& text : {refused.error().to_string(), health.address, health.last_error}) {
    EXPECT_EQ(text.find("wr0ng-secret"), std::string::npos) << text;
    EXPECT_EQ(text.find("hunter2"), std::string::npos) << text;
    EXPECT_FALSE(text.empty());
  }
}

TEST_F(RedisRemote, WorksOverTls) {
  start({.tls = true});
  options.url = server->tls_url();
  options.ca_file = server->certificates().ca_file;
  reopen();
  const auto large = entry("a", test_bytes(2'500'000, 1));
  publish({large});
  FakeSink sink;
  remote.blobs->fetch(std::span(&large.digest, 1), sink, soon());
  EXPECT_EQ(sink.error_of(large.digest), std::nullopt);
  EXPECT_EQ(sink.frames.at(large.digest), source.frame(large.digest));
}

TEST_F(RedisRemote, ProbeNamesTheSettingsThatAnOperatorShouldChange) {
  const auto well = remote.operators->probe(soon());
  ASSERT_TRUE(well);
  EXPECT_EQ(well->eviction_policy, "noeviction");
  EXPECT_TRUE(well->warnings.empty());
  run({"CONFIG", "SET", "maxmemory", "100mb"});
  auto facts = remote.operators->probe(soon());
  ASSERT_EQ(facts->warnings.size(), 1U);
  EXPECT_NE(facts->warnings[0].find("volatile-ttl"), std::string::npos);
  EXPECT_EQ(facts->memory_limit, 100U << 20);
  EXPECT_GT(facts->memory_used, 100U << 10);
  EXPECT_LT(facts->memory_used, facts->memory_limit);
  EXPECT_EQ(facts->evicted, 0U);
  run({"CONFIG", "SET", "maxmemory-policy", "allkeys-lru"});
  facts = remote.operators->probe(soon());
  ASSERT_EQ(facts->warnings.size(), 1U);
  EXPECT_NE(facts->warnings[0].find("allkeys-lru"), std::string::npos);
  run({"CONFIG", "SET", "maxmemory-policy", "volatile-ttl"});
  EXPECT_TRUE(remote.operators->probe(soon())->warnings.empty());
}

TEST(FactsFromInfo, TellsServersApart) {
  const auto valkey = facts_from_info("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.1\r\n");
  ASSERT_TRUE(valkey);
  EXPECT_EQ(valkey->version, "valkey 8.1.1");
  const auto code = [](const std::string& info) {
    const auto facts = facts_from_info(info);
    return facts ? std::optional<ErrorCode>() : facts.error().code();
  };
  EXPECT_EQ(code("redis_version:6.2.14\r\n"), ErrorCode::kNotSupported);
  EXPECT_EQ(code("redis_version:7.0.15\r\nredis_mode:cluster\r\n"), ErrorCode::kNotSupported);
  EXPECT_EQ(code("redis_version:10.0.0\r\nredis_mode:standalone"), std::nullopt);
  EXPECT_EQ(code("memcached 1.6"), ErrorCode::kInvalid);
  EXPECT_EQ(code(""), ErrorCode::kInvalid);
}

class NoServer : public ::testing::Test {
 protected:
  Remote open(const std::string& url) {
    RemoteOptions options;
    options.url = url;
    auto remote = open_redis(options, counters);
    EXPECT_TRUE(remote) << remote.error().to_string();
    return remote.value_or(Remote{});
  }
  Counters counters;
};

TEST_F(NoServer, AStrangerIsCalledNoRedisServer) {
  const ScriptedServer server(always_answer("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"));
  const auto facts = open(server.url()).operators->probe(soon());
  ASSERT_FALSE(facts);
  EXPECT_EQ(facts.error().code(), ErrorCode::kInvalid);
}

TEST_F(NoServer, ErrorsOfTheServerReachTheCallerWithTheirCode) {
  struct Case {
    const char* text;
    ErrorCode code;
  };
  for (const auto& [text, code] :
       {Case{"-LOADING wait\r\n", ErrorCode::kUnavailable}, Case{"-NOPERM no\r\n", ErrorCode::kNotPermitted},
        Case{"-ERR what\r\n", ErrorCode::kInternal}}) {
    const ScriptedServer server(always_answer(text));
    const auto remote = open(server.url());
    FakeSink sink;
    const codec::Digest digest = codec::digest_of("x");
    remote.blobs->fetch(std::span(&digest, 1), sink, soon());
    EXPECT_EQ(sink.error_of(digest), code) << text;
    const auto delta = remote.index->read_changes("5c0be", {}, soon());
    ASSERT_FALSE(delta);
    EXPECT_EQ(delta.error().code(), code) << text;
    FakeSource source;
    const auto outcome = remote.index->publish(group_of("5c0be", {entry_of("a", source.add("x"))}), source, soon());
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().code(), code) << text;
    const auto lost = remote.index->report_lost("5c0be", "a", digest, soon());
    ASSERT_FALSE(lost);
    EXPECT_EQ(lost.error().code(), code) << text;
  }
}

TEST_F(NoServer, RepliesOfTheWrongTypeAreErrors) {
  for (const char* text :
       {"+OK\r\n", ":1\r\n", "*0\r\n", "*2\r\n:1\r\n:2\r\n", "$-1\r\n", "*1\r\n*1\r\n*1\r\n:1\r\n"}) {
    const ScriptedServer server(always_answer(text));
    const auto remote = open(server.url());
    EXPECT_FALSE(remote.index->read_changes("5c0be", {}, soon())) << text;
    FakeSink sink;
    const codec::Digest digest = codec::digest_of("x");
    remote.blobs->fetch(std::span(&digest, 1), sink, soon());
    EXPECT_NE(sink.error_of(digest), std::nullopt) << text;
    FakeSource source;
    EXPECT_FALSE(remote.index->publish(group_of("5c0be", {entry_of("a", source.add("x"))}), source, soon())) << text;
    EXPECT_FALSE(remote.operators->probe(soon())) << text;
  }
}

TEST_F(NoServer, ABlobThatBreaksOffInTheMiddleIsAnswered) {
  const std::string frame = test_bytes(kPieceBytes + 10, 1);
  const std::string value = PieceHead::of(frame.size()).encode() + frame.substr(0, kPieceBytes);
  const auto bulk = [](std::string_view bytes) {
    return "$" + std::to_string(bytes.size()) + "\r\n" + std::string(bytes) + "\r\n";
  };
  const ScriptedServer server([&](ScriptedClient& client) {
    (void)client.command();  // CLIENT SETNAME
    client.send("+OK\r\n");
    (void)client.command();
    client.send(bulk(value.substr(0, 65536)));
    // What is left of its first piece, and the second one. A reset, or an end with a command unread, would take with it
    // what the network has not brought yet.
    (void)client.command();
    (void)client.command();
    client.send(bulk(value.substr(65536)));
    client.send("$10\r\nabc");
  });
  FakeSink sink;
  const codec::Digest digest = codec::digest_of(frame);
  open(server.url()).blobs->fetch(std::span(&digest, 1), sink, soon());
  EXPECT_EQ(sink.error_of(digest), ErrorCode::kUnavailable);
}

TEST(OpenRedis, RefusesOptionsThatCannotWork) {
  Counters counters;
  const auto code = [&](const RemoteOptions& options) {
    const auto remote = open_redis(options, counters);
    return remote ? std::optional<ErrorCode>() : remote.error().code();
  };
  RemoteOptions good;
  good.url = "redis://nowhere.invalid";
  EXPECT_EQ(code(good), std::nullopt) << "a server that is absent is no error";
  RemoteOptions bad = good;
  bad.url = "nonsense";
  EXPECT_EQ(code(bad), ErrorCode::kInvalid);
  bad = good;
  bad.password_file = "/nonexistent";
  EXPECT_EQ(code(bad), ErrorCode::kInvalid);
  bad = good;
  bad.prefix = "a{b}";
  EXPECT_EQ(code(bad), ErrorCode::kInvalid);
  bad = good;
  bad.blob_lifetime = std::chrono::seconds(0);
  EXPECT_EQ(code(bad), ErrorCode::kInvalid);
}

}  // namespace
}  // namespace inductorfs::remote
