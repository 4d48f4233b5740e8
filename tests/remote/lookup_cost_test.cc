// SPDX-License-Identifier: Apache-2.0
// What a lookup costs at most when the server, or the way to it, fails at each of the steps that it may need. The
// default patience; everything else that could wait is far longer, so that a step with a wait of its own shows.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <latch>
#include <thread>

#include "inductorfs/base/counters.h"
#include "remote/formats/piece.h"
#include "remote_fakes.h"
#include "support/patience.h"
#include "support/scripted_server.h"

namespace inductorfs::remote {
namespace {

using inductorfs::testing::ScriptedClient;
using inductorfs::testing::ScriptedServer;

constexpr Milliseconds kPatience{250};
constexpr Milliseconds kTotal{20000};
/// Of a loaded machine. Less than any wait beside the patience.
constexpr Milliseconds kSlack{1500 * testing::kSlowness};

std::string bulk(std::string_view bytes) {
  return "$" + std::to_string(bytes.size()) + "\r\n" + std::string(bytes) + "\r\n";
}
/// What GETRANGE of a whole small blob answers.
std::string small_blob() { return bulk(PieceHead::of(100).encode() + std::string(100, 'x')); }
void greet(ScriptedClient& client) {
  (void)client.command();  // CLIENT SETNAME
  client.send("+OK\r\n");
}

struct Cost {
  Milliseconds took;
  FakeSink sink;
};

class LookupCosts : public ::testing::Test {
 protected:
  Remote open(const std::string& url, size_t connections = 4) {
    RemoteOptions options;
    options.url = url;
    options.connections = connections;
    options.connect_patience = options.without_progress = Milliseconds(10000);
    auto remote = open_redis(options, counters);
    EXPECT_TRUE(remote) << remote.error().to_string();
    return remote.value_or(Remote{});
  }
  static Cost look_up(const Remote& remote, size_t blobs = 1, Milliseconds patience = kPatience,
                      Progress* common = nullptr) {
    std::vector<codec::Digest> digests;
    for (size_t i = 0; i < blobs; ++i) digests.push_back(codec::digest_of("blob " + std::to_string(i)));
    Cost cost{};
    const auto start = std::chrono::steady_clock::now();
    Budget budget(Deadline::after(kTotal), patience, start, common);
    remote.blobs->fetch_within(digests, cost.sink, budget);
    cost.took = std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - start);
    return cost;
  }
  /// Whether it has had to wait for the server; else it was turned away at once.
  static bool waited(const Cost& cost) {
    return cost.sink.error_of(codec::digest_of("blob 0")) == ErrorCode::kTimedOut;
  }
  void expect_one_patience(const Remote& remote, const std::string& scenario, size_t blobs = 1) {
    const auto cost = look_up(remote, blobs);
    std::cout << "  cost of a lookup | " << scenario << " | " << cost.took.count() << " ms\n";
    EXPECT_GE(cost.took, kPatience - Milliseconds(5)) << scenario;
    EXPECT_LT(cost.took, kPatience + kSlack) << scenario << ": a lookup cost " << cost.took.count() << " ms";
    EXPECT_EQ(cost.sink.outcomes.size(), blobs) << scenario;
    EXPECT_TRUE(remote.blobs->resting()) << scenario << ": the next lookup would wait as long";
  }

  Counters counters;
};

struct Step {
  const char* name;
  ScriptedServer::Script script;
  const char* scheme = "redis://";
  const char* credentials = "";
  size_t blobs = 1;
};

TEST_F(LookupCosts, AreOnePatienceAtWhateverStepTheServerHangs) {
  const std::array<Step, 8> steps = {{
      {"black hole after connect", [](ScriptedClient& client) { client.hang(); }},
      {"TLS handshake unanswered", [](ScriptedClient& client) { client.hang(); }, "rediss://"},
      {"AUTH unanswered", [](ScriptedClient& client) { client.hang(); }, "redis://", ":secret@"},
      {"greeting byte by byte",
       [](ScriptedClient& client) {
         (void)client.command();
         client.send("+");
         client.drip('O', 20);
       }},
      {"first reply unanswered",
       [](ScriptedClient& client) {
         greet(client);
         client.hang();
       }},
      {"hang in the middle of a string",
       [](ScriptedClient& client) {
         greet(client);
         (void)client.command();
         client.send("$65536\r\n" + std::string(30000, 'x'));
         client.hang();
       }},
      {"string byte by byte",
       [](ScriptedClient& client) {
         greet(client);
         (void)client.command();
         client.send("$65536\r\n");
         client.drip('x', 20);
       }},
      {"second of four blobs unanswered",
       [](ScriptedClient& client) {
         greet(client);
         (void)client.command();
         client.send(small_blob());
         client.hang();
       },
       "redis://", "", 4},
  }};
  for (const Step& step : steps) {
    const ScriptedServer server(step.script);
    const std::string url = step.scheme + std::string(step.credentials) + "127.0.0.1:" + std::to_string(server.port());
    if (url.starts_with("rediss")) (void)look_up(open(url));  // reads the host's certificates, once in a process
    expect_one_patience(open(url), step.name, step.blobs);
  }
}

// A host that drops every packet: no SYN is answered once the queue of a listener that never accepts is full.
TEST_F(LookupCosts, AreOnePatienceWhenNothingAnswersTheConnect) {
  const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::bind(listener.get(), generic, size), 0);
  ASSERT_EQ(::listen(listener.get(), 0), 0);
  ASSERT_EQ(::getsockname(listener.get(), generic, &size), 0);
  std::vector<Fd> queue;
  for (int i = 0; i < 4; ++i) {
    queue.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    (void)::connect(queue.back().get(), generic, size);  // the first fill the queue, the others wait as ours will
  }
  const auto remote = open("redis://127.0.0.1:" + std::to_string(ntohs(address.sin_port)));
  expect_one_patience(remote, "connect unanswered");
}

TEST_F(LookupCosts, AreOnePatienceWhenAnIdleConnectionHangs) {
  const ScriptedServer server([](ScriptedClient& client) {
    greet(client);
    (void)client.command();
    client.send("$0\r\n\r\n");
    client.hang();
  });
  const auto remote = open(server.url());
  const codec::Digest digest = codec::digest_of("blob 0");
  EXPECT_EQ(look_up(remote, 1, kTotal).sink.error_of(digest), ErrorCode::kNotFound);
  expect_one_patience(remote, "idle connection hangs");
  EXPECT_EQ(server.accepted(), 1);
}

TEST_F(LookupCosts, AreOnePatienceOverBothTriesTogether) {
  std::atomic<int> connections = 0;
  const ScriptedServer server([&](ScriptedClient& client) {
    if (++connections > 1) return client.hang();
    greet(client);
    (void)client.command();
    client.send("$0\r\n\r\n");
    (void)client.command();
    client.reset();
  });
  const auto remote = open(server.url());
  const codec::Digest digest = codec::digest_of("blob 0");
  EXPECT_EQ(look_up(remote, 1, kTotal).sink.error_of(digest), ErrorCode::kNotFound);
  expect_one_patience(remote, "idle connection reset, the next one hangs");
  EXPECT_EQ(server.accepted(), 2);
}

TEST_F(LookupCosts, AreOnePatienceWhenAllConnectionsHangInOthersHands) {
  const ScriptedServer server([](ScriptedClient& client) {
    greet(client);
    client.hang();
  });
  const auto remote = open(server.url(), 1);
  std::array<Cost, 3> costs;
  Progress common;
  std::vector<std::jthread> threads;
  for (Cost& cost : costs) threads.emplace_back([&] { cost = look_up(remote, 1, kPatience, &common); });
  threads.clear();
  for (const Cost& cost : costs) {
    std::cout << "  cost of a lookup | one connection for three lookups, and it hangs | " << cost.took.count()
              << " ms\n";
    EXPECT_LT(cost.took, kPatience + kSlack) << "a lookup cost " << cost.took.count() << " ms";
  }
  EXPECT_LE(server.accepted(), 3);
}

TEST_F(LookupCosts, EndAtOnceForThoseWhomAGoneServerRefuses) {
  uint16_t port = 0;
  {
    port = ScriptedServer([](ScriptedClient&) {}).port();
  }
  const auto remote = open("redis://127.0.0.1:" + std::to_string(port));
  const auto cost = look_up(remote, 1, kTotal);
  std::cout << "  cost of a lookup | refused | " << cost.took.count() << " ms\n";
  EXPECT_LT(cost.took, kTotal / 2);
  EXPECT_TRUE(remote.blobs->resting());
}

// Progress: 2 KiB every 100 ms, for longer than the patience.
TEST_F(LookupCosts, MayBeLongerWhileBytesArrive) {
  constexpr Milliseconds kShort{1000};
  const std::string reply = bulk(PieceHead::of(40000).encode() + std::string(40000, 'x'));
  const ScriptedServer server([&](ScriptedClient& client) {
    greet(client);
    (void)client.command();
    for (size_t at = 0; at < reply.size(); at += 2048) {
      client.send(std::string_view(reply).substr(at, 2048));
      client.pause(100);
    }
    client.hang();
  });
  const auto remote = open(server.url());
  const auto cost = look_up(remote, 1, kShort);
  EXPECT_EQ(cost.sink.error_of(codec::digest_of("blob 0")), std::nullopt);
  EXPECT_GT(cost.took, kShort) << "or the test shows nothing";
  EXPECT_FALSE(remote.blobs->resting());
}

TEST_F(LookupCosts, MayBeLongerWhileTheBytesOfThoseBeforeArrive) {
  constexpr Milliseconds kShort{700};
  const std::string reply = bulk(PieceHead::of(40000).encode() + std::string(40000, 'x'));
  std::atomic<bool> begun = false;
  const ScriptedServer server([&](ScriptedClient& client) {
    greet(client);
    while (!client.command().empty()) {
      for (size_t at = 0; at < reply.size(); at += 2048) {
        client.send(std::string_view(reply).substr(at, 2048));
        client.pause(begun.exchange(true) ? 60 : 100);
      }
    }
  });
  const auto remote = open(server.url(), 1);
  Progress common;
  std::jthread before([&] { (void)look_up(remote, 1, kShort, &common); });
  while (!begun) std::this_thread::yield();
  const auto cost = look_up(remote, 1, kShort, &common);
  EXPECT_EQ(cost.sink.error_of(codec::digest_of("blob 0")), std::nullopt);
  EXPECT_GT(cost.took, kShort) << "or it did not stand in line";
}

// A network that passes small packets only: all but fetches go well, which must not send every lookup into the wait.
TEST_F(LookupCosts, DoNotComeAgainBecauseSmallAnswersGetThrough) {
  const ScriptedServer server([](ScriptedClient& client) {
    while (true) {
      const auto words = client.command();
      if (words.empty()) return;
      if (words[0] == "GETRANGE") {
        client.send("$65536\r\n" + std::string(1000, 'x'));
        return client.hang();
      }
      client.send(words[0] == "INFO" ? bulk("redis_version:7.0.15\r\n") : "+OK\r\n");
    }
  });
  int waits = 0;
  int well = 0;
  // A probe that got no core in time is an outage like any other: such a measurement says nothing, and is made again.
  for (int attempt = 0; attempt < 5 && well < 10; ++attempt) {
    const auto remote = open(server.url());
    waits = 0;
    well = 0;
    const Deadline end = Deadline::after(Milliseconds(3000));
    while (!end.passed()) {
      if (remote.operators->probe(soon())) ++well;
      if (waited(look_up(remote))) ++waits;
    }
  }
  EXPECT_GE(well, 10) << "or nothing could have reset the rest";
  EXPECT_GE(waits, 2);
  EXPECT_LE(waits, 6) << "each wait should be followed by a longer rest";
}

// A busy server: it answers all, too late for lookups and in time for who has more patience.
TEST_F(LookupCosts, OfALateServerDoNotKeepFromItWhoWaitsLonger) {
  std::atomic<bool> ended = false;
  const ScriptedServer server([](ScriptedClient& client) {
    while (true) {
      const auto words = client.command();
      if (words.empty()) return;
      ScriptedClient::pause(static_cast<int>(2 * kPatience.count()));
      client.send(words[0] == "INFO" ? bulk("redis_version:7.0.15\r\n") : "+OK\r\n");
    }
  });
  const auto remote = open(server.url());
  std::jthread job([&] {
    while (!ended) (void)look_up(remote);
  });
  for (int i = 0; i < 3; ++i) {
    while (!remote.blobs->resting()) std::this_thread::yield();
    const auto answer = remote.operators->probe(Deadline::after(kTotal));
    EXPECT_TRUE(answer) << answer.error().to_string();
  }
  ended = true;
}

TEST_F(LookupCosts, GarbageIsAnOutageAndNoFaultOfTheBlob) {
  for (const bool greets : {true, false}) {
    const ScriptedServer server([greets](ScriptedClient& client) {
      if (greets) greet(client);
      (void)client.command();
      client.send("HTTP/1.1 400 Bad Request\r\n\r\n");
      client.hang();
    });
    const auto cost = look_up(open(server.url()), 1, kTotal);
    EXPECT_EQ(cost.sink.error_of(codec::digest_of("blob 0")), ErrorCode::kUnavailable)
        << "kCorrupt would take the entry away from the whole cluster";
    FakeSource source;
    const auto outcome =
        open(server.url()).index->publish(group_of("5c0be", {entry_of("a", source.add("x"))}), source, soon());
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().code(), ErrorCode::kUnavailable) << "kCorrupt would give the artefact up";
  }
}

TEST_F(LookupCosts, ProbesAreMadeByOneLookupAtATime) {
  std::atomic<int> asked = 0;
  std::atomic<bool> well = false;
  const ScriptedServer server([&](ScriptedClient& client) {
    greet(client);
    while (!client.command().empty()) {
      ++asked;
      if (!well) return client.hang();
      client.send("$0\r\n\r\n");
    }
  });
  const auto remote = open(server.url());
  constexpr Milliseconds kLong{2000 * testing::kSlowness};  // in which a busy machine has the whole herd ask
  (void)look_up(remote, 1, kLong);
  ASSERT_EQ(asked, 1);
  std::atomic<int> waits = 0;
  while (remote.blobs->resting()) std::this_thread::yield();
  {
    constexpr int kHerd = 16;
    std::latch start(kHerd);
    std::vector<std::jthread> herd;
    for (int i = 0; i < kHerd; ++i) {
      herd.emplace_back([&] {
        start.arrive_and_wait();
        if (waited(look_up(remote, 1, kLong))) ++waits;
      });
    }
  }
  EXPECT_EQ(asked, 2) << "one of the herd is the probe";
  EXPECT_EQ(waits, 1) << "the others are answered at once";
  well = true;
  const codec::Digest digest = codec::digest_of("blob 0");
  const Deadline end = Deadline::after(Milliseconds(15000));
  bool answered = false;
  while (!answered && !end.passed()) {
    answered = look_up(remote, 1, kTotal).sink.error_of(digest) == ErrorCode::kNotFound;
  }
  EXPECT_TRUE(answered);
  EXPECT_FALSE(remote.blobs->resting());
  EXPECT_EQ(counters.get("remote.breaker_open").get(), 0U);
}

}  // namespace
}  // namespace inductorfs::remote
