// SPDX-License-Identifier: Apache-2.0
// Several pipelines at once, and a server that speaks first.
#include <gtest/gtest.h>

#include <array>
#include <atomic>

#include "inductorfs/redis/connection.h"
#include "inductorfs/redis/listener.h"
#include "support/scripted_server.h"

namespace inductorfs::redis {
namespace {

using inductorfs::testing::always_answer;
using inductorfs::testing::ScriptedClient;
using inductorfs::testing::ScriptedServer;

std::unique_ptr<Connection> connect(const ScriptedServer& server) {
  return Connection::open(parse_url(server.url()).value(), Deadline::after(Milliseconds(5000))).value();
}

struct Heard {
  std::vector<std::string> texts;
  Exchange on(Connection& connection, size_t commands) {
    Exchange exchange;
    exchange.connection = &connection;
    exchange.commands.assign(commands, {"PING"});
    exchange.on_reply = [this](size_t, Reply&& reply) -> Result<void> {
      texts.push_back(std::move(reply.text));
      return {};
    };
    return exchange;
  }
};

/// No server answers a command before all have got theirs: who asks one after another gets no answer.
TEST(ExchangeAll, WaitsForTheSlowestAndNotForEachInTurn) {
  std::atomic<int> got = 0;
  const auto together = [&got](ScriptedClient& client) {
    for (int round = 1; !client.command().empty(); ++round) {
      ++got;
      client.wait_end([&] { return got >= 3 * round; });
      (void)client.send("+PONG\r\n");
    }
  };
  const ScriptedServer first(together);
  const ScriptedServer second(together);
  const ScriptedServer third(together);
  std::array<std::unique_ptr<Connection>, 3> connections{connect(first), connect(second), connect(third)};
  std::array<Heard, 3> heard;
  std::vector<Exchange> exchanges;
  for (size_t i = 0; i < 3; ++i) exchanges.push_back(heard[i].on(*connections[i], 2));
  exchange_all(exchanges, {.total = Milliseconds(20'000), .without_progress = Milliseconds(20'000)});
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(exchanges[i].outcome);
    EXPECT_EQ(heard[i].texts, (std::vector<std::string>{"PONG", "PONG"}));
    EXPECT_FALSE(connections[i]->broken());
  }
}

TEST(ExchangeAll, OneThatHangsOrEndsTakesNothingFromTheOthers) {
  const ScriptedServer well(always_answer("+PONG\r\n"));
  const ScriptedServer hung([](ScriptedClient& client) { client.hang(); });
  const ScriptedServer dying([](ScriptedClient& client) {
    (void)client.command();
    (void)client.send("+PONG\r\n");
    client.reset();
  });
  const auto a = connect(well);
  const auto b = connect(hung);
  const auto c = connect(dying);
  Heard from_well;
  Heard from_hung;
  Heard from_dying;
  std::vector<Exchange> exchanges{from_well.on(*a, 3), from_hung.on(*b, 3), from_dying.on(*c, 3)};
  // The patience is for the one that goes on, too.
  exchange_all(exchanges, {.total = Milliseconds(20'000), .without_progress = Milliseconds(2'000)});
  EXPECT_TRUE(exchanges[0].outcome);
  EXPECT_EQ(from_well.texts.size(), 3U);
  EXPECT_FALSE(a->broken());
  ASSERT_FALSE(exchanges[1].outcome);
  EXPECT_EQ(exchanges[1].outcome.error().code(), ErrorCode::kTimedOut);
  EXPECT_TRUE(b->broken());
  ASSERT_FALSE(exchanges[2].outcome);
  EXPECT_EQ(exchanges[2].outcome.error().code(), ErrorCode::kUnavailable);
  EXPECT_EQ(from_dying.texts.size(), 1U);
}

TEST(ExchangeAll, EndsWhenNobodyWaitsAnyMore) {
  const ScriptedServer hung([](ScriptedClient& client) { client.hang(); });
  const auto one = connect(hung);
  Heard heard;
  std::vector<Exchange> exchanges{heard.on(*one, 1)};
  const std::function<bool()> cancelled = [] { return true; };
  exchange_all(exchanges,
               {.total = Milliseconds(60'000), .without_progress = Milliseconds(60'000), .cancelled = &cancelled});
  ASSERT_FALSE(exchanges[0].outcome);
  EXPECT_EQ(exchanges[0].outcome.error().code(), ErrorCode::kBusy);
}

TEST(Unreachable, IsTheReasonAgain) {
  const Reply reply = unreachable(Error(ErrorCode::kTimedOut, "h:1: no answer"));
  EXPECT_TRUE(reply.is_error() && is_unreachable(reply));
  EXPECT_EQ(to_error(reply).code(), ErrorCode::kUnavailable);
  EXPECT_EQ(to_error(reply).what(), "h:1: no answer");
}

TEST(Listener, HearsWhatIsSentUnasked) {
  std::atomic<bool> speak = false;
  const ScriptedServer server([&](ScriptedClient& client) {
    (void)client.command();
    client.send_bytewise("*3\r\n$10\r\nssubscribe\r\n$1\r\nc\r\n:1\r\n");
    client.wait_end([&] { return speak.load(); });
    (void)client.send("*3\r\n$8\r\nsmessage\r\n$1\r\nc\r\n$0\r\n\r\n");
    (void)client.command();
  });
  const auto listener = Listener::open(parse_url(server.url()).value(), Deadline::after(Milliseconds(5000))).value();
  const std::function<bool()> never = [] { return false; };
  const auto next = [&]() -> std::string {
    while (true) {
      auto message = listener->next();
      if (!message) return message.error().what();
      if (*message) return (*message)->items.front().text;
      Listener* const all[] = {listener.get()};
      EXPECT_TRUE(Listener::wait(all, Deadline::after(Milliseconds(5000)), never));
    }
  };
  ASSERT_TRUE(listener->send({"SSUBSCRIBE", "c"}, Deadline::after(Milliseconds(5000))));
  EXPECT_EQ(next(), "ssubscribe");
  ASSERT_FALSE(*listener->next()) << "nothing has been said yet";
  speak = true;
  EXPECT_EQ(next(), "smessage");
}

TEST(Listener, RefusesWhatIsTooLongAndSeesTheEnd) {
  const ScriptedServer loud([](ScriptedClient& client) {
    (void)client.command();
    (void)client.send("$100000\r\n" + std::string(100'000, 'x') + "\r\n");
    client.hang();
  });
  const auto listener = Listener::open(parse_url(loud.url()).value(), Deadline::after(Milliseconds(5000))).value();
  ASSERT_TRUE(listener->send({"SSUBSCRIBE", "c"}, Deadline::after(Milliseconds(5000))));
  Result<std::optional<Reply>> message;
  const Deadline deadline = Deadline::after(Milliseconds(5000));
  do {
    message = listener->next();
  } while (message && !deadline.passed());
  ASSERT_FALSE(message);
  EXPECT_EQ(message.error().code(), ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace inductorfs::redis
