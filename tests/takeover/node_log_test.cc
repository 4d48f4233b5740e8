// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/takeover/node_log.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace inductorfs::takeover {
namespace {

class Log : public ::testing::Test {
 protected:
  static std::vector<std::string> records(const NodeLog& log) {
    std::vector<std::string> found;
    log.read([&](std::string_view record) { found.emplace_back(record); });
    return found;
  }
  static void add(NodeLog& log, const std::string& record) {
    const std::string_view one[] = {record};
    log.append(one);
  }

  Region region = std::move(*Region::create(1));
  NodeLog log{region};
};

using Texts = std::vector<std::string>;

TEST_F(Log, GivesBackWhatWasAddedInItsOrder) {
  add(log, "one");
  add(log, "");
  add(log, std::string("t\0o", 3));
  EXPECT_EQ(records(log), (Texts{"one", "", std::string("t\0o", 3)}));
  EXPECT_EQ(records(NodeLog(region)), records(log)) << "by another worker";
}

TEST_F(Log, IsEmptyAtFirst) {
  EXPECT_TRUE(records(log).empty());
  EXPECT_EQ(log.bytes(), 0U);
  EXPECT_EQ(log.last_id(), 0U);
}

TEST_F(Log, StartsAnewFromASnapshotAndGoesOn) {
  for (int i = 0; i < 1000; ++i) add(log, "old");
  log.set_last_id(77);
  for (int round = 0; round < 3; ++round) {
    log.snapshot([&](const auto& keep) { keep("kept " + std::to_string(round)); });
    add(log, "after");
    EXPECT_EQ(records(log), (Texts{"kept " + std::to_string(round), "after"}));
  }
  EXPECT_EQ(NodeLog(region).last_id(), 77U);
}

TEST_F(Log, WantsASnapshotWhenHalfOfItIsNoLongerTrue) {
  EXPECT_FALSE(log.wants_snapshot(0)) << "nothing to win";
  const std::string record(1000, 'x');
  for (int i = 0; i < 3000; ++i) add(log, record);
  EXPECT_TRUE(log.wants_snapshot(1'000'000));
  EXPECT_FALSE(log.wants_snapshot(2'000'000));
}

TEST_F(Log, WantsNoOtherSnapshotBeforeItHasGrown) {
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

TEST_F(Log, SaysThatItIsFullAndKeepsWhatItHas) {
  add(log, "first");
  const std::string large(64 << 20, 'x');
  for (size_t written = 0; written <= NodeLog::kHalf && !log.full(); written += large.size()) add(log, large);
  EXPECT_TRUE(log.full());
  const auto found = records(log);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.front(), "first");
  EXPECT_FALSE(log.wants_snapshot(NodeLog::kHalf)) << "there would be no room";
  EXPECT_TRUE(log.wants_snapshot(1000));
  log.snapshot([&](const auto& keep) {
    for (size_t written = 0; written <= NodeLog::kHalf; written += large.size()) keep(large);
  });
  EXPECT_TRUE(log.full());
  EXPECT_FALSE(log.wants_snapshot(1000)) << "it had no room a moment ago";
  EXPECT_TRUE(log.wants_snapshot(100));
  log.snapshot([](const auto& keep) { keep("small"); });
  EXPECT_FALSE(log.full());
  EXPECT_EQ(records(log), (Texts{"small"}));
}

TEST_F(Log, TakesRecordsOfManyThreads) {
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
