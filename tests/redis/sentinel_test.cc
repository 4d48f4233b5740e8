// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>

#include "inductorfs/redis/connection.h"
#include "support/redis_server.h"
#include "support/scripted_server.h"

/// Sentinels that are scripts; a real failover is in tests/cluster/test_sentinel.py.
namespace inductorfs::redis {
namespace {

using inductorfs::testing::ScriptedClient;
using inductorfs::testing::ScriptedServer;
using Words = std::vector<std::string>;

std::string bulk(const std::string& text) { return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n"; }

ScriptedServer::Script names(const std::function<std::string(const Words&)>& answer) {
  return [answer](ScriptedClient& client) {
    for (Words words = client.command(); !words.empty(); words = client.command()) {
      (void)client.send(words[0] == "SENTINEL" ? answer(words) : "+OK\r\n");
    }
  };
}

std::string master_at(uint16_t port) { return "*2\r\n" + bulk("127.0.0.1") + bulk(std::to_string(port)); }

/// Says of itself what it is, and keeps what it is asked.
ScriptedServer::Script server_of_role(const std::string& role, std::atomic<int>& pings) {
  return [role, &pings](ScriptedClient& client) {
    for (Words words = client.command(); !words.empty(); words = client.command()) {
      if (words[0] == "ROLE") {
        (void)client.send("*1\r\n" + bulk(role));
      } else {
        pings += words[0] == "PING" ? 1 : 0;
        (void)client.send("+PONG\r\n");
      }
    }
  };
}

std::string url_of(const std::vector<uint16_t>& ports, const std::string& who = "") {
  std::string hosts;
  for (const uint16_t port : ports)
    hosts += (hosts.empty() ? "" : ",") + std::string("127.0.0.1:") + std::to_string(port);
  return "redis+sentinel://" + who + hosts + "/mymaster";
}

Result<std::unique_ptr<Connection>> open(const Endpoint& endpoint, int milliseconds = 3000) {
  return Connection::open(endpoint, Deadline::after(Milliseconds(milliseconds)));
}

Endpoint endpoint_of(const std::string& url) { return parse_url(url).value(); }

class Sentinel : public ::testing::Test {
 protected:
  std::atomic<int> pings_{0};
  ScriptedServer master_{server_of_role("master", pings_)};
  ScriptedServer replica_{server_of_role("slave", pings_)};
};

TEST_F(Sentinel, NamesTheServer) {
  Words asked;
  const ScriptedServer sentinel(names([&](const Words& words) {
    asked = words;
    return master_at(master_.port());
  }));
  const auto connection = open(endpoint_of(url_of({sentinel.port()})));
  ASSERT_TRUE(connection) << connection.error().to_string();
  EXPECT_EQ((*connection)->call({"PING"}, {})->text, "PONG");
  EXPECT_EQ(pings_, 1);
  EXPECT_EQ(asked, (Words{"SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"}));
}

TEST_F(Sentinel, IsAskedAnewForEachConnection) {
  std::atomic<int> other_pings{0};
  const ScriptedServer promoted(server_of_role("master", other_pings));
  std::atomic<uint16_t> now{master_.port()};
  const ScriptedServer sentinel(names([&](const Words&) { return master_at(now); }));
  const Endpoint endpoint = endpoint_of(url_of({sentinel.port()}));
  ASSERT_TRUE(open(endpoint));
  now = promoted.port();
  const auto connection = open(endpoint);
  ASSERT_TRUE(connection);
  ASSERT_TRUE((*connection)->call({"PING"}, {}));
  EXPECT_EQ(other_pings, 1);
}

TEST_F(Sentinel, ThatIsDeadHungOrIgnorantIsPassedBy) {
  const ScriptedServer hung([](ScriptedClient& client) { client.hang(); });
  const ScriptedServer ignorant(names([](const Words&) { return "*-1\r\n"; }));
  const ScriptedServer failing(names([](const Words&) { return "-IDONTKNOW busy\r\n"; }));
  const ScriptedServer garbage(names([](const Words&) { return ":7\r\n"; }));
  const ScriptedServer good(names([&](const Words&) { return master_at(master_.port()); }));
  uint16_t closed = 0;
  {
    const ScriptedServer gone([](ScriptedClient&) {});
    closed = gone.port();
  }
  const Endpoint endpoint =
      endpoint_of(url_of({closed, hung.port(), ignorant.port(), failing.port(), garbage.port(), good.port()}));
  ASSERT_TRUE(open(endpoint, 5000));
  const int before = hung.accepted();
  ASSERT_TRUE(open(endpoint, 1000)) << "the one that answered is asked first";
  EXPECT_EQ(hung.accepted(), before);
}

TEST_F(Sentinel, WhenNoneKnowsTheReasonOfEachIsTold) {
  const ScriptedServer ignorant(names([](const Words&) { return "*-1\r\n"; }));
  const ScriptedServer failing(names([](const Words&) { return "-IDONTKNOW busy\r\n"; }));
  const auto connection = open(endpoint_of(url_of({ignorant.port(), failing.port()}, ":hunter2@")));
  ASSERT_FALSE(connection);
  EXPECT_EQ(connection.error().code(), ErrorCode::kUnavailable);
  const std::string why = connection.error().what();
  EXPECT_NE(why.find("knows no master mymaster"), std::string::npos) << why;
  EXPECT_NE(why.find("IDONTKNOW"), std::string::npos) << why;
  EXPECT_EQ(why.find("hunter2"), std::string::npos) << why;
}

TEST_F(Sentinel, ThatNamesAReplicaIsNotBelieved) {
  const ScriptedServer sentinel(names([&](const Words&) { return master_at(replica_.port()); }));
  const auto connection = open(endpoint_of(url_of({sentinel.port()})));
  ASSERT_FALSE(connection);
  EXPECT_EQ(connection.error().code(), ErrorCode::kUnavailable);
  EXPECT_NE(connection.error().what().find("is a slave"), std::string::npos) << connection.error().what();
}

TEST_F(Sentinel, WithAPasswordGetsTheServers) {
  std::atomic<bool> known{false};
  const ScriptedServer sentinel([&](ScriptedClient& client) {
    for (Words words = client.command(); !words.empty(); words = client.command()) {
      if (words[0] == "AUTH") known = words.back() == "secret";
      const bool in = words[0] != "SENTINEL" || known;
      (void)client.send(!in                      ? "-NOAUTH Authentication required.\r\n"
                        : words[0] == "SENTINEL" ? master_at(master_.port())
                                                 : "+OK\r\n");
    }
  });
  EXPECT_FALSE(open(endpoint_of(url_of({sentinel.port()}))));
  EXPECT_TRUE(open(endpoint_of(url_of({sentinel.port()}, ":secret@"))));
}

TEST_F(Sentinel, IsGivenUpWhenNobodyWaitsAnyMore) {
  const ScriptedServer hung([](ScriptedClient& client) { client.hang(); });
  const std::function<bool()> cancelled = [] { return true; };
  const auto connection = Connection::open(endpoint_of(url_of({hung.port(), hung.port()})),
                                           Deadline::after(Milliseconds(20000)), &cancelled);
  ASSERT_FALSE(connection);
  EXPECT_EQ(connection.error().code(), ErrorCode::kBusy);
}

}  // namespace
}  // namespace inductorfs::redis
