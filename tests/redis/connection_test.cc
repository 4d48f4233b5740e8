// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/redis/connection.h"

#include <gtest/gtest.h>

#include <atomic>

#include "support/patience.h"
#include "support/scripted_server.h"

namespace inductorfs::redis {
namespace {

using inductorfs::testing::always_answer;
using inductorfs::testing::ScriptedClient;
using inductorfs::testing::ScriptedServer;

constexpr Patience kShort{Milliseconds(400), Milliseconds(100)};
/// For a server that goes on: a busy machine may let it wait for longer than kShort takes for a hang.
constexpr Patience kAmple{Milliseconds(20000), Milliseconds(10000)};
constexpr Patience kDripped{Milliseconds(1500), Milliseconds(1200)};
/// A call may need this long over its patience on a loaded machine.
constexpr Milliseconds kSlack{1500 * testing::kSlowness};

std::unique_ptr<Connection> connect(const ScriptedServer& server, const std::string& credentials = "") {
  auto endpoint = parse_url(server.url(credentials));
  EXPECT_TRUE(endpoint);
  auto connection = Connection::open(*endpoint, Deadline::after(Milliseconds(5000)));
  EXPECT_TRUE(connection) << connection.error().to_string();
  return connection ? std::move(*connection) : nullptr;
}

struct Timed {
  Result<Reply> reply;
  Milliseconds took;
};

Timed timed_call(Connection& connection, Patience patience) {
  const auto start = std::chrono::steady_clock::now();
  auto reply = connection.call({"GET", "k"}, patience);
  return {std::move(reply), std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - start)};
}

TEST(Connection, EndsAHangWithinTheTimeWithoutProgress) {
  const ScriptedServer server([](ScriptedClient& client) { client.hang(); });
  const auto connection = connect(server);
  const auto [reply, took] = timed_call(*connection, kShort);
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code(), ErrorCode::kTimedOut);
  EXPECT_GE(took, kShort.without_progress);
  EXPECT_LT(took, kShort.without_progress + kSlack);
  EXPECT_TRUE(connection->broken());
  const auto again = connection->call({"PING"}, kShort);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code(), ErrorCode::kUnavailable);
}

TEST(Connection, EndsADripWithinTheWholeDeadlineAlthoughThereIsProgress) {
  const ScriptedServer server([](ScriptedClient& client) {
    (void)client.command();  // whatever it is
    client.send("$100000000\r\n");
    client.drip('x', 5);
  });
  const auto connection = connect(server);
  const auto [reply, took] = timed_call(*connection, kDripped);
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code(), ErrorCode::kTimedOut);
  EXPECT_GE(took, kDripped.total);
  EXPECT_LT(took, kDripped.total + kSlack);
}

TEST(Connection, ReportsAResetInTheMiddleOfAStringAsUnavailable) {
  const ScriptedServer server([](ScriptedClient& client) {
    (void)client.command();
    client.send("$1000\r\nonly this");
    client.reset();
  });
  const auto connection = connect(server);
  const auto [reply, took] = timed_call(*connection, kAmple);
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code(), ErrorCode::kUnavailable);
  EXPECT_TRUE(connection->broken());
}

TEST(Connection, ReadsAReplyThatComesByteByByte) {
  const ScriptedServer server([](ScriptedClient& client) {
    while (!client.command().empty()) client.send_bytewise("*2\r\n$5\r\nhello\r\n:42\r\n");
  });
  const auto connection = connect(server);
  const auto reply = connection->call({"GET", "k"}, {Milliseconds(5000), Milliseconds(2000)});
  ASSERT_TRUE(reply) << reply.error().to_string();
  EXPECT_EQ(reply->items.at(0).text, "hello");
  EXPECT_EQ(reply->items.at(1).integer, 42);
  EXPECT_FALSE(connection->broken());
}

TEST(Connection, CallsGarbageCorrupt) {
  const ScriptedServer server(always_answer("HTTP/1.1 400 Bad Request\r\n\r\n"));
  const auto connection = connect(server);
  const auto [reply, took] = timed_call(*connection, kAmple);
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code(), ErrorCode::kCorrupt);
  EXPECT_TRUE(connection->broken());
}

TEST(Connection, RefusesAnEndlessString) {
  const ScriptedServer server([](ScriptedClient& client) {
    (void)client.command();
    client.send("$4000000000\r\n");
    const std::string chunk(1 << 20, 'x');
    for (int i = 0; i < 64; ++i) client.send(chunk);
  });
  const auto connection = connect(server);
  const auto reply = connection->call({"GET", "k"}, {Milliseconds(20000), Milliseconds(5000)});
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code(), ErrorCode::kCorrupt);
}

TEST(Connection, DoesNotTrustAServerThatAnswersMoreThanItWasAsked) {
  const ScriptedServer server(always_answer("+one\r\n+two\r\n"));
  const auto connection = connect(server);
  const auto reply = connection->call({"PING"}, {Milliseconds(2000), Milliseconds(2000)});
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->text, "one");
  // The second may be in the same packet or still on the way.
  const Deadline deadline = Deadline::after(Milliseconds(5000));
  while (!connection->broken() && !deadline.passed()) std::this_thread::yield();
  EXPECT_TRUE(connection->broken());
}

TEST(Connection, NoticesThatTheServerClosedItWhileIdle) {
  const ScriptedServer server([](ScriptedClient& client) {
    (void)client.command();
    client.send("+OK\r\n");
  });
  const auto connection = connect(server);
  ASSERT_TRUE(connection->call({"PING"}, {Milliseconds(2000), Milliseconds(2000)}));
  const Deadline deadline = Deadline::after(Milliseconds(5000));
  while (!connection->broken() && !deadline.passed()) std::this_thread::yield();
  EXPECT_TRUE(connection->broken());
}

TEST(Connection, MovesLargePipelinesBothWaysWithoutDeadlock) {
  // The server answers each command at once and at length: whoever writes everything before reading would stop for
  // ever when both socket buffers are full.
  const std::string value(200'000, 'v');
  const ScriptedServer server([&](ScriptedClient& client) {
    while (!client.command().empty()) client.send("$200000\r\n" + value + "\r\n");
  });
  const auto connection = connect(server);
  const std::vector<Command> commands(100, Command{"ECHO", value});
  size_t seen = 0;
  const auto outcome = connection->pipeline(commands, {Milliseconds(30000), Milliseconds(5000)},
                                            [&](size_t index, Reply&& reply) -> Result<void> {
                                              EXPECT_EQ(index, seen++);
                                              EXPECT_EQ(reply.text, value);
                                              return {};
                                            });
  ASSERT_TRUE(outcome) << outcome.error().to_string();
  EXPECT_EQ(seen, commands.size());
}

TEST(Connection, StopsAtTheErrorOfItsCallerAndDropsTheRest) {
  const ScriptedServer server(always_answer("+OK\r\n"));
  const auto connection = connect(server);
  const std::vector<Command> commands(3, Command{"PING"});
  const auto stop_at = [&](size_t last) {
    return connection->pipeline(commands, {Milliseconds(2000), Milliseconds(2000)},
                                [last](size_t index, Reply&&) -> Result<void> {
                                  if (index == last) return fail(ErrorCode::kNoSpace, "enough");
                                  return {};
                                });
  };
  const auto at_end = stop_at(2);
  ASSERT_FALSE(at_end);
  EXPECT_EQ(at_end.error().code(), ErrorCode::kNoSpace);
  EXPECT_FALSE(connection->broken()) << "all replies have been read";
  ASSERT_FALSE(stop_at(0));
  EXPECT_TRUE(connection->broken());
}

TEST(Connection, EndsARestingCallSoonAfterItIsCancelled) {
  const ScriptedServer server([](ScriptedClient& client) { client.hang(); });
  const auto connection = connect(server);
  std::atomic<int> asked = 0;
  const auto start = std::chrono::steady_clock::now();
  const auto reply = connection->call_blocking({"XREAD"}, Milliseconds(60000), [&] { return ++asked > 2; });
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code(), ErrorCode::kBusy);
  EXPECT_LT(std::chrono::steady_clock::now() - start, Milliseconds(300) + kSlack);
  EXPECT_TRUE(connection->broken());
}

TEST(Connection, IsUnavailableWhereNobodyListens) {
  uint16_t port = 0;
  {
    const ScriptedServer server(always_answer("+OK\r\n"));
    port = server.port();
  }
  Endpoint endpoint;
  endpoint.host = "127.0.0.1";
  endpoint.port = port;
  const auto connection = Connection::open(endpoint, Deadline::after(Milliseconds(2000)));
  ASSERT_FALSE(connection);
  EXPECT_EQ(connection.error().code(), ErrorCode::kUnavailable);
  endpoint.socket_path = "/nonexistent/redis.sock";
  const auto unix_connection = Connection::open(endpoint, Deadline::after(Milliseconds(2000)));
  ASSERT_FALSE(unix_connection);
  EXPECT_EQ(unix_connection.error().code(), ErrorCode::kUnavailable);
  endpoint.socket_path = "/" + std::string(200, 'x');
  const auto too_long = Connection::open(endpoint, Deadline::after(Milliseconds(2000)));
  ASSERT_FALSE(too_long);
  EXPECT_EQ(too_long.error().code(), ErrorCode::kInvalid);
}

TEST(Connection, GivesUpOnANameThatDoesNotResolve) {
  Endpoint endpoint;
  endpoint.host = "no-such-host.invalid";
  const auto start = std::chrono::steady_clock::now();
  const auto connection = Connection::open(endpoint, Deadline::after(Milliseconds(300)));
  ASSERT_FALSE(connection);
  EXPECT_TRUE(connection.error().code() == ErrorCode::kUnavailable ||
              connection.error().code() == ErrorCode::kTimedOut);
  EXPECT_LT(std::chrono::steady_clock::now() - start, Milliseconds(300) + kSlack);
}

struct ServerError {
  const char* text;
  ErrorCode code;
};
class ServerErrors : public ::testing::TestWithParam<ServerError> {};

TEST_P(ServerErrors, BecomeTheCodeThatCallersActOn) {
  const ScriptedServer server(always_answer(std::string("-") + GetParam().text + "\r\n"));
  const auto connection = connect(server);
  const auto reply = connection->call({"GET", "k"}, {Milliseconds(2000), Milliseconds(2000)});
  ASSERT_TRUE(reply);
  ASSERT_TRUE(reply->is_error());
  EXPECT_EQ(to_error(*reply).code(), GetParam().code);
  EXPECT_FALSE(connection->broken()) << "an error reply is a reply";
}

INSTANTIATE_TEST_SUITE_P(
    All, ServerErrors,
    ::testing::Values(ServerError{"LOADING Redis is loading the dataset in memory", ErrorCode::kUnavailable},
                      ServerError{"READONLY You can't write against a read only replica.", ErrorCode::kUnavailable},
                      ServerError{"OOM command not allowed when used memory > 'maxmemory'.", ErrorCode::kUnavailable},
                      ServerError{"MISCONF Redis is configured to save RDB snapshots", ErrorCode::kUnavailable},
                      ServerError{"NOREPLICAS Not enough good replicas to write.", ErrorCode::kUnavailable},
                      ServerError{"CLUSTERDOWN The cluster is down", ErrorCode::kUnavailable},
                      ServerError{"MASTERDOWN Link with MASTER is down", ErrorCode::kUnavailable},
                      ServerError{"TRYAGAIN Multiple keys request during rehashing", ErrorCode::kUnavailable},
                      ServerError{"BUSY Redis is busy running a script.", ErrorCode::kUnavailable},
                      ServerError{"ERR max number of clients reached", ErrorCode::kUnavailable},
                      ServerError{"NOAUTH Authentication required.", ErrorCode::kNotPermitted},
                      ServerError{"WRONGPASS invalid username-password pair", ErrorCode::kNotPermitted},
                      ServerError{"NOPERM this user has no permissions", ErrorCode::kNotPermitted},
                      ServerError{"MOVED 1 10.0.0.1:6379", ErrorCode::kNotSupported},
                      ServerError{"WRONGTYPE Operation against a key", ErrorCode::kInternal},
                      ServerError{"BUSYGROUP exists", ErrorCode::kInternal}));

TEST(Greeting, NeverShowsThePasswordThatAServerQuotes) {
  const ScriptedServer server([](ScriptedClient& client) {
    while (true) {
      const auto words = client.command();
      if (words.empty()) return;
      std::string quoted = "-ERR unknown command '" + words[0] + "', with args beginning with:";
      for (size_t i = 1; i < words.size(); ++i) quoted += " '" + words[i] + "'";
      client.send(quoted + "\r\n");
    }
  });
  const auto endpoint = parse_url(server.url("ann:hunter2@"));
  ASSERT_TRUE(endpoint);
  const auto connection = Connection::open(*endpoint, Deadline::after(Milliseconds(5000)));
  ASSERT_FALSE(connection);
  EXPECT_EQ(connection.error().code(), ErrorCode::kNotPermitted);
  EXPECT_EQ(connection.error().to_string().find("hunter2"), std::string::npos) << connection.error().to_string();
}

TEST(Greeting, SaysWhyCredentialsAreRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"ERR AUTH <password> called without any password configured for the default user. Are you sure?",
       "AUTH refused: the server has no password: leave the user and --password-file out"},
      {"ERR Client sent AUTH, but no password is set",
       "AUTH refused: the server has no password: leave the user and --password-file out"},
      {"ERR wrong number of arguments for 'auth' command",
       "AUTH refused: the server knows no users: leave the user out of --remote"},
      {"ERR max number of clients reached", "AUTH refused: too many clients: raise its maxclients"},
      {"WRONGPASS invalid username-password pair or user is disabled.",
       "AUTH refused: WRONGPASS (check the user in --remote and the file of the password)"},
      {"ERR hunter2 is no password", "AUTH refused: ERR (check user and password)"},
  };
  for (const auto& [text, told] : cases) {
    const ScriptedServer server([text = text](ScriptedClient& client) {
      (void)client.command();
      client.send("-" + std::string(text) + "\r\n");
    });
    const auto endpoint = parse_url(server.url("ann:hunter2@"));
    ASSERT_TRUE(endpoint);
    const auto connection = Connection::open(*endpoint, Deadline::after(Milliseconds(5000)));
    ASSERT_FALSE(connection) << text;
    EXPECT_EQ(connection.error().what(), told);
  }
}

TEST(Greeting, SendsCredentialsDatabaseAndName) {
  std::atomic<int> matched = 0;
  const ScriptedServer server([&](ScriptedClient& client) {
    using Words = std::vector<std::string>;
    for (const Words& expected : {Words{"AUTH", "ann", "pw"}, Words{"SELECT", "2"}, Words{"CLIENT", "SETNAME", "me"}}) {
      if (client.command() == expected) ++matched;
      client.send(expected[0] == "CLIENT" ? "-NOPERM no such right\r\n" : "+OK\r\n");
    }
    client.hang();
  });
  auto endpoint = parse_url(server.url("ann:pw@") + "/2");
  ASSERT_TRUE(endpoint);
  endpoint->client_name = "me";
  const auto connection = Connection::open(*endpoint, Deadline::after(Milliseconds(5000)));
  EXPECT_TRUE(connection) << "a refused name is no error: " << connection.error().to_string();
  EXPECT_EQ(matched, 3);
}

TEST(Greeting, SaysWhyAServerTurnsItsClientsAway) {
  for (const char* text : {"ERR max number of clients reached", "DENIED Redis is running in protected mode"}) {
    const ScriptedServer server([text](ScriptedClient& client) {
      (void)client.command();
      client.send("-" + std::string(text) + "\r\n");
    });
    auto endpoint = parse_url(server.url());
    endpoint->client_name = "me";
    const auto connection = Connection::open(*endpoint, Deadline::after(Milliseconds(5000)));
    ASSERT_FALSE(connection) << text;
    EXPECT_NE(connection.error().what().find(text), std::string::npos) << connection.error().to_string();
  }
}

TEST(ToError, SaysWhatToDoAboutIt) {
  const std::pair<const char*, const char*> cases[] = {
      {"NOAUTH Authentication required.", "--password-file"},
      {"OOM command not allowed", "volatile-ttl"},
      {"READONLY You can't write", "--remote"},
      {"MISCONF Redis is configured to save", "disk"},
      {"BUSY Redis is busy running a script.", "SCRIPT KILL"},
      {"MOVED 1 h:1", "redis+cluster://"},
      {"NOPERM no", "ACL LOG"},
      {"ERR max number of clients reached", "maxclients"},
      {"WRONGTYPE Operation against a key", "--prefix"},
  };
  for (const auto& [text, remedy] : cases) {
    Reply reply;
    reply.kind = Reply::Kind::kError;
    reply.text = text;
    EXPECT_NE(to_error(reply).what().find(remedy), std::string::npos) << to_error(reply).to_string();
  }
}

TEST(ToError, ShowsServerTextOnOneShortPrintableLine) {
  Reply reply;
  reply.kind = Reply::Kind::kError;
  reply.text = "ERR \x1b[31m\n" + std::string(10'000, 'x');
  const std::string text = to_error(reply).to_string();
  EXPECT_LT(text.size(), 400U);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace inductorfs::redis
