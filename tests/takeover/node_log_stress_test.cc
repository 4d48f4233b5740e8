// SPDX-License-Identifier: Apache-2.0
// A log that is filled to its end: two gibibytes of memory are written.
#include "takeover/node_log_fixture.h"

namespace inductorfs::takeover {
namespace {

TEST_F(NodeLogTest, SaysThatItIsFullAndKeepsWhatItHas) {
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

}  // namespace
}  // namespace inductorfs::takeover
