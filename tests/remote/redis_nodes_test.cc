// SPDX-License-Identifier: Apache-2.0
// What heartbeats cost the server, and what they mend there.
#include <gtest/gtest.h>

#include "redis_fixture.h"

namespace inductorfs::remote {
namespace {

class RedisNodes : public RedisFixture {
 protected:
  [[nodiscard]] uint64_t commands() {
    const std::string info = run({"INFO", "stats"}).text;
    const std::string name = "total_commands_processed:";
    return std::stoull(info.substr(info.find(name) + name.size()));
  }
  [[nodiscard]] std::string beat() { return remote.operators->beat("aa", "record", soon())->not_listed; }
  [[nodiscard]] size_t listed() { return remote.operators->list_nodes(kNodesLimit, soon())->size(); }

  const NodeKeys nodes{"ifs1"};
};

TEST_F(RedisNodes, AMountThatIsListedIsNotRegisteredWithEachRecord) {
  ASSERT_EQ(beat(), "");
  const uint64_t before = commands();
  constexpr uint64_t kBeats = 5;
  for (uint64_t i = 0; i < kBeats; ++i) ASSERT_EQ(beat(), "");
  const uint64_t own = 1;  // the INFO from which `before` came
  EXPECT_EQ(commands() - before, 3 * kBeats + own) << "the orders, the record, and whether the registry has the mount";
  const uint64_t between = commands();
  ASSERT_EQ(remote.operators->beat("aa", "", soon())->not_listed, "");
  EXPECT_EQ(commands() - between, 1 + own);
}

TEST_F(RedisNodes, AMountThatTheServerForgotIsListedAgainWithItsNextRecord) {
  ASSERT_EQ(beat(), "");
  ASSERT_EQ(listed(), 1U);
  const std::vector<redis::Command> losses = {{"FLUSHALL"},
                                              {"DEL", nodes.registry},
                                              {"ZREM", nodes.registry, "aa"},
                                              {"SET", nodes.registry, "of another type"}};
  for (const redis::Command& loss : losses) {
    run(loss);
    EXPECT_EQ(listed(), 0U) << loss[0];
    EXPECT_EQ(beat(), "") << loss[0];
    EXPECT_EQ(listed(), 1U) << loss[0];
  }
}

TEST_F(RedisNodes, AMountWhoseUserMayNotAskTheRegistryIsListedAllTheSame) {
  run({"ACL", "SETUSER", "default", "-zscore"});
  EXPECT_EQ(beat(), "");
  EXPECT_EQ(beat(), "");
  EXPECT_EQ(listed(), 1U);
}

TEST_F(RedisNodes, ARegistrationOutlivesRecordsAndIsNotForgottenBeforeTheNext) {
  ASSERT_EQ(beat(), "");
  EXPECT_GT(run({"PTTL", nodes.registry}).integer, 5 * kNodeLifetime.count());
}

TEST_F(RedisNodes, MissingMountsAreRememberedForAWeekAndAsManyAsMayBe) {
  ASSERT_TRUE(remote.operators->remember_node("one", soon()));
  EXPECT_GT(run({"PTTL", nodes.seen}).integer, kMissingLifetime.count() - 60'000);
  const auto list = [&] { return remote.operators->list_missing_nodes(kMissingAfter, soon()).value(); };
  EXPECT_TRUE(list().empty());
  // What a killed mount leaves; the server's clock cannot be put forward.
  const int64_t now = remote.operators->read_orders(soon())->server_time;
  run({"ZADD", nodes.seen, std::to_string(now - kMissingAfter.count() - 5000), "killed"});
  run({"ZADD", nodes.seen, std::to_string(now - kMissingLifetime.count() - 5000), "long ago"});
  run({"ZADD", nodes.seen, std::to_string(now - kMissingAfter.count()), std::string(kNodeNameLimit + 1, 'x')});
  ASSERT_TRUE(remote.operators->remember_node("one", soon()));
  ASSERT_EQ(list().size(), 1U);
  EXPECT_EQ(list()[0].name, "killed");
  EXPECT_GE(list()[0].age, kMissingAfter);
  run({"SET", nodes.seen, "of another type"});
  EXPECT_TRUE(list().empty());
  ASSERT_TRUE(remote.operators->remember_node("one", soon()));
  EXPECT_EQ(run({"ZCARD", nodes.seen}).integer, 1);
}

}  // namespace
}  // namespace inductorfs::remote
