// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/takeover/node_log.h"

#include <string>
#include <thread>
#include <vector>

#include "takeover/node_log_fixture.h"

namespace inductorfs::takeover {
namespace {

TEST_F(NodeLogTest, GivesBackWhatWasAddedInItsOrder) {
  add(log, "one");
  add(log, "");
  add(log, std::string("t\0o", 3));
  EXPECT_EQ(records(log), (Texts{"one", "", std::string("t\0o", 3)}));
  EXPECT_EQ(records(NodeLog(region)), records(log)) << "by another worker";
}

TEST_F(NodeLogTest, IsEmptyAtFirst) {
  EXPECT_TRUE(records(log).empty());
  EXPECT_EQ(log.bytes(), 0U);
  EXPECT_EQ(log.last_id(), 0U);
}

TEST_F(NodeLogTest, StartsAnewFromASnapshotAndGoesOn) {
  for (int i = 0; i < 1000; ++i) add(log, "old");
  log.set_last_id(77);
  for (int round = 0; round < 3; ++round) {
    log.snapshot([&](const auto& keep) { keep("kept " + std::to_string(round)); });
    add(log, "after");
    EXPECT_EQ(records(log), (Texts{"kept " + std::to_string(round), "after"}));
  }
  EXPECT_EQ(NodeLog(region).last_id(), 77U);
}

TEST_F(NodeLogTest, WantsASnapshotWhenHalfOfItIsNoLongerTrue) {
  EXPECT_FALSE(log.wants_snapshot(0)) << "nothing to win";
  const std::string record(1000, 'x');
  for (int i = 0; i < 3000; ++i) add(log, record);
  EXPECT_TRUE(log.wants_snapshot(1'000'000));
  EXPECT_FALSE(log.wants_snapshot(2'000'000));
}

TEST_F(NodeLogTest, WantsNoOtherSnapshotBeforeItHasGrown) {
  const std::string record(1000, 'x');
  const auto keep_all = [&](const auto& keep) {
    for (int i = 0; i < 4000; ++i) keep(record);
  };
  log.snapshot(keep_all);
  EXPECT_FALSE(log.wants_snapshot(1000)) << "what is true takes more than it seems";
  for (int i = 0; i < 1000; ++i) add(log, record);
  EXPECT_FALSE(log.wants_snapshot(1000));
  add(log, record);
  EXPECT_TRUE(log.wants_snapshot(1000));
}

TEST_F(NodeLogTest, TakesRecordsOfManyThreads) {
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 1000; ++i) {
        const std::string record = std::to_string(t) + " " + std::to_string(i);
        const std::string_view pair[] = {record, record};
        log.append(pair);
      }
    });
  }
  threads.clear();
  const auto found = records(log);
  ASSERT_EQ(found.size(), 8000U);
  for (size_t i = 0; i < found.size(); i += 2) EXPECT_EQ(found[i], found[i + 1]) << "one step";
}

}  // namespace
}  // namespace inductorfs::takeover
