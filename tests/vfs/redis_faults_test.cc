// SPDX-License-Identifier: Apache-2.0
// Each state that a Redis can be in, and what jobs of a mount see of it: a name that the cluster has and this host has
// not is looked up, something is written, another host publishes, the mount is made anew. Then the fault goes.
#include <gtest/gtest.h>

#include <filesystem>
#include <iostream>
#include <thread>

#include "support/lacks.h"
#include "support/patience.h"
#include "vfs/redis_bed.h"

namespace inductorfs::testing {
namespace {

using Mode = FaultProxy::Mode;

constexpr Milliseconds kPatience{250};  // FileSystemOptions::lookup_patience
/// Of a loaded machine.
constexpr Milliseconds kSlack{3000 * kSlowness};
/// What host.start() waits for the cluster (RedisBed), and reading what is on the disk.
constexpr Milliseconds kStartMost{500 + 1500};
constexpr int kFurtherLookups = 20;

enum class Lookup { kMiss, kHit };
enum class Write {
  kWaits,   ///< the write is done at once and is published when the fault has gone
  kPasses,  ///< it reaches the others although the fault is there
  kEither,  ///< the server is slow enough for both
};

struct Fault {
  const char* name;
  Lookup lookup;
  Write write;
  const char* counter;  ///< grows
  const char* says;     ///< is in the remote's last error; empty where nothing fails
  std::function<void(RedisBed&)> begin;
  std::function<void(RedisBed&)> end;
  RedisServer::Options server{};
};

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

Fault proxied(const char* name, Lookup lookup, Write write, const char* counter, const char* says, Mode mode,
              std::string bytes = {}) {
  return {name,
          lookup,
          write,
          counter,
          says,
          [mode, bytes](RedisBed& bed) { bed.proxy->set(mode, bytes); },
          [](RedisBed& bed) { bed.proxy->set(Mode::kNone); }};
}

Fault answering(const char* name, const char* says, const std::string& bytes, const char* counter = "fetch.failed") {
  return proxied(name, Lookup::kMiss, Write::kWaits, counter, says, Mode::kAnswer, bytes);
}

void disconnect_everybody(RedisBed& bed) { bed.operate({"CLIENT", "KILL", "TYPE", "normal"}); }

Fault misconf() {
  const auto begin = [](RedisBed& bed) {
    const std::string place = bed.server->directory() + "/gone";
    std::filesystem::create_directory(place);
    bed.operate({"CONFIG", "SET", "dir", place});
    std::filesystem::remove(place);
    bed.operate({"CONFIG", "SET", "save", "3600 1000000"});
    bed.operate({"BGSAVE"});
    const auto failed = [&] {
      return bed.operate({"INFO", "persistence"}).text.find("rdb_last_bgsave_status:err") != std::string::npos;
    };
    EXPECT_TRUE(eventually(failed));
  };
  const auto end = [](RedisBed& bed) { bed.operate({"CONFIG", "SET", "stop-writes-on-bgsave-error", "no"}); };
  return {"MISCONF of a server without disk",
          Lookup::kHit,
          Write::kWaits,
          "remote.publish_refused",
          "",
          begin,
          end,
          {.arguments = {"--enable-protected-configs", "yes"}}};
}

Fault busy() {
  static std::jthread script;
  const auto begin = [](RedisBed& bed) {
    bed.operate({"CONFIG", "SET", "busy-reply-threshold", "1"});
    script = std::jthread([url = bed.server->url()] {
      auto runs = redis::Connection::open(*redis::parse_url(url), Deadline::after(std::chrono::seconds(10)));
      if (runs) (void)(*runs)->call({"EVAL", "while true do end", "0"}, {Milliseconds(60000), Milliseconds(60000)});
    });
    const auto is_busy = [&] {
      auto asks =
          redis::Connection::open(*redis::parse_url(bed.server->url()), Deadline::after(std::chrono::seconds(5)));
      auto reply = asks ? (*asks)->call({"PING"}, {Milliseconds(5000), Milliseconds(5000)}) : fail(asks.error());
      return reply && reply->is_error();
    };
    EXPECT_TRUE(eventually(is_busy));
  };
  const auto end = [](RedisBed& bed) {
    bed.operate({"SCRIPT", "KILL"});
    script = {};
  };
  return {"BUSY with somebody's script", Lookup::kMiss, Write::kWaits, "fetch.failed", "SCRIPT KILL", begin, end};
}

Fault loading() {
  const auto begin = [](RedisBed& bed) {
    for (int i = 0; i < 300; ++i) bed.operate({"SET", "ballast" + std::to_string(i), "x"});
    bed.operate({"SAVE"});
    bed.restart_server();
  };
  const auto end = [](RedisBed& bed) {
    const auto loaded = [&] {
      return bed.operate({"INFO", "persistence"}).text.find("\nloading:0") != std::string::npos;
    };
    EXPECT_TRUE(eventually(loaded));
  };
  return {"LOADING of a server that starts",
          Lookup::kMiss,
          Write::kWaits,
          "remote.breaker_opened",
          "",
          begin,
          end,
          {.arguments = {"--key-load-delay", "15000", "--loading-process-events-interval-bytes", "1024"}}};
}

std::vector<Fault> faults() {
  return {
      proxied("refused", Lookup::kMiss, Write::kWaits, "remote.breaker_opened", "refused", Mode::kRefused),
      proxied("black hole", Lookup::kMiss, Write::kWaits, "fetch.refused", "--lookup-patience", Mode::kSilent),
      proxied("hang within a string", Lookup::kMiss, Write::kPasses, "fetch.refused", "", Mode::kHangMidway),
      proxied("RST within a string", Lookup::kMiss, Write::kPasses, "fetch.failed", "", Mode::kResetMidway),
      proxied("byte by byte", Lookup::kHit, Write::kPasses, "fetch.blobs", "", Mode::kBytewise),
      proxied("a byte now and then", Lookup::kMiss, Write::kEither, "fetch.refused", "", Mode::kDrip),
      answering("garbage", "no Redis server", "HTTP/1.1 400 Bad Request\r\n\r\n"),
      answering("replies of a wrong type", "", ":1\r\n"),
      answering("LOADING", "LOADING", "-LOADING Redis is loading the dataset in memory\r\n"),
      answering("MASTERDOWN", "name the master",
                "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n"),
      answering("NOAUTH", "--password-file", "-NOAUTH Authentication required.\r\n"),
      answering("NOPERM", "ACL LOG", "-NOPERM this user has no permissions to run the 'getrange' command\r\n"),
      answering("MOVED", "redis+cluster://", "-MOVED 3999 127.0.0.1:6381\r\n"),
      answering("ASK", "redis+cluster://", "-ASK 3999 127.0.0.1:6381\r\n"),
      answering("CLUSTERDOWN", "cluster-require-full-coverage", "-CLUSTERDOWN The cluster is down\r\n"),
      answering("BUSY", "SCRIPT KILL", "-BUSY Redis is busy running a script.\r\n"),
      proxied("turned away: too many clients", Lookup::kMiss, Write::kWaits, "remote.breaker_opened", "maxclients",
              Mode::kTurnAway, "-ERR max number of clients reached\r\n"),
      proxied("turned away: protected mode", Lookup::kMiss, Write::kWaits, "remote.breaker_opened", "protected-mode",
              Mode::kTurnAway, "-DENIED Redis is running in protected mode\r\n"),
      {"hung server", Lookup::kMiss, Write::kWaits, "fetch.refused", "--lookup-patience",
       [](RedisBed& bed) { bed.server->freeze(); }, [](RedisBed& bed) { bed.server->thaw(); }},
      {"READONLY of a replica", Lookup::kHit, Write::kWaits, "remote.publish_refused", "",
       [](RedisBed& bed) {
         bed.operate({"REPLICAOF", "127.0.0.1", "1"});
       },
       [](RedisBed& bed) {
         bed.operate({"REPLICAOF", "NO", "ONE"});
       }},
      {"OOM", Lookup::kHit, Write::kWaits, "remote.publish_refused", "",
       [](RedisBed& bed) {
         bed.operate({"CONFIG", "SET", "maxmemory", "1"});
       },
       [](RedisBed& bed) {
         bed.operate({"CONFIG", "SET", "maxmemory", "0"});
       }},
      misconf(),
      busy(),
      loading(),
      {"WRONGPASS after a change of password",
       Lookup::kMiss,
       Write::kWaits,
       "remote.breaker_opened",
       "password",
       [](RedisBed& bed) {
         bed.operate({"CONFIG", "SET", "requirepass", "another"});
         disconnect_everybody(bed);
       },
       [](RedisBed& bed) {
         bed.operate({"CONFIG", "SET", "requirepass", "right"});
       },
       {.password = "right"}},
      {"NOPERM after a change of the ACL", Lookup::kMiss, Write::kWaits, "fetch.failed", "ACL LOG",
       [](RedisBed& bed) {
         bed.operate({"ACL", "SETUSER", "default", "-@all", "+acl"});
       },
       [](RedisBed& bed) {
         bed.operate({"ACL", "SETUSER", "default", "+@all"});
       }},
      {"too many clients", Lookup::kMiss, Write::kWaits, "remote.breaker_opened", "maxclients",
       [](RedisBed& bed) {
         bed.operate({"CONFIG", "SET", "maxclients", "1"});
         disconnect_everybody(bed);
       },
       [](RedisBed& bed) {
         bed.operate({"CONFIG", "SET", "maxclients", "1000"});
       }},
  };
}

class RedisFaults : public ::testing::TestWithParam<Fault> {
 protected:
  void SetUp() override {
    if (!RedisServer::available()) INDUCTORFS_LACKS("redis-server");
  }
};

TEST_P(RedisFaults, CostAJobAMissAtMostAndLoseNothing) {
  const Fault& fault = GetParam();
  RedisBed bed(fault.server);
  // Its frame must be longer than FaultProxy::kLongReply: digits that do not compress well.
  std::string text;
  for (int i = 0; i < 100; ++i) text += codec::digest_of(std::to_string(i)).to_hex();
  const std::string there = bed.publish(*bed.a, text);
  ASSERT_TRUE(bed.a->sync());
  ASSERT_TRUE(bed.b->wait_for_entry(there));
  const uint64_t counted = bed.counters.get(fault.counter).get() + bed.b->count(fault.counter);

  fault.begin(bed);
  const auto first = RedisBed::look_up(*bed.b, there);
  EXPECT_EQ(first.found, fault.lookup == Lookup::kHit);
  EXPECT_FALSE(first.kept) << "the kernel must ask again after the fault";
  EXPECT_LT(first.took, kPatience + kSlack);
  Milliseconds others{0};
  for (int i = 0; i < kFurtherLookups; ++i) others += RedisBed::look_up(*bed.b, there).took;
  EXPECT_LT(others, 2 * kPatience + kSlack) << "each further lookup waits";

  const auto begun = std::chrono::steady_clock::now();
  const std::string mine = bed.publish(*bed.b, "written under the fault");
  const auto wrote = std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - begun);
  EXPECT_LT(wrote, kSlack);
  EXPECT_EQ(bed.b->read(mine).value_or("absent"), "written under the fault");
  const std::string later = bed.publish(*bed.a, "another host's, under the fault");
  if (fault.write == Write::kPasses) {
    EXPECT_TRUE(bed.a->wait_for_entry(mine));
  }
  // Again and again: where another call than a fetch met the fault first, the breaker turned the lookups above away.
  EXPECT_TRUE(eventually([&] {
    (void)RedisBed::look_up(*bed.b, there);
    return bed.counters.get(fault.counter).get() + bed.b->count(fault.counter) > counted;
  })) << fault.counter;
  if (fault.write == Write::kWaits) {
    EXPECT_FALSE(bed.a->catalog->find(mine));
  }
  std::string said;
  EXPECT_TRUE(eventually([&] {
    said = bed.b->remote.operators->health().last_error;
    return said.find(fault.says) != std::string::npos;
  })) << said;

  const auto stopped = std::chrono::steady_clock::now();
  bed.b->restart();
  const auto restarted = std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - stopped);
  EXPECT_LT(restarted, kStartMost + kSlack);
  EXPECT_EQ(bed.b->read(mine).value_or("absent"), "written under the fault");

  const auto over = std::chrono::steady_clock::now();
  fault.end(bed);
  EXPECT_TRUE(eventually([&] { return bed.b->read(there).value_or("absent") == text; }));
  EXPECT_TRUE(bed.a->wait_for_entry(mine));
  EXPECT_EQ(bed.a->read(mine).value_or("absent"), "written under the fault");
  EXPECT_TRUE(eventually([&] { return bed.b->exists(later); }));
  const auto recovered = std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - over);
  std::cout << "  | " << fault.name << " | " << (first.found ? "found" : "ENOENT") << " after " << first.took.count()
            << " ms, " << kFurtherLookups << " more in " << others.count() << " ms | written in " << wrote.count()
            << " ms | mounted in " << restarted.count() << " ms | well after " << recovered.count() << " ms | " << said
            << "\n";
}

/// However long that went on.
TEST(RedisRecovery, TakesSecondsAfterAServerThatTurnedItsClientsAway) {
  constexpr Milliseconds kRecoveryMost{5000};
  constexpr uint64_t kProbes = 8;  // rests of 100 ms that double had grown to 10 s by then
  RedisBed bed({});
  const std::string there = bed.publish(*bed.a, "there");
  ASSERT_TRUE(bed.a->sync());
  ASSERT_TRUE(bed.b->wait_for_entry(there));
  bed.operate({"CONFIG", "SET", "maxclients", "1"});
  disconnect_everybody(bed);
  const std::string mine = bed.publish(*bed.b, "written meanwhile");
  ASSERT_TRUE(eventually([&] {
    (void)RedisBed::look_up(*bed.b, there);
    return bed.counters.get("remote.breaker_opened").get() >= kProbes;
  }));

  const auto over = std::chrono::steady_clock::now();
  bed.operate({"CONFIG", "SET", "maxclients", "1000"});
  EXPECT_TRUE(eventually([&] { return bed.b->read(there).value_or("absent") == "there"; }));
  EXPECT_TRUE(bed.a->wait_for_entry(mine));
  const auto took = std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - over);
  EXPECT_LT(took, kRecoveryMost);
}

INSTANTIATE_TEST_SUITE_P(All, RedisFaults, ::testing::ValuesIn(faults()));

}  // namespace
}  // namespace inductorfs::testing
