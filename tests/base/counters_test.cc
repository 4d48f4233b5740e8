// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/counters.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace inductorfs {
namespace {

TEST(Counters, SameNameIsTheSameCounter) {
  Counters counters;
  Counter& first = counters.get("fuse.lookup");
  first.add(2);
  counters.get("fuse.lookup").add();
  EXPECT_EQ(first.get(), 3U);
  counters.get("store.bytes").set(7);
  EXPECT_EQ(counters.snapshot(), (std::map<std::string, uint64_t>{{"fuse.lookup", 3}, {"store.bytes", 7}}));
}

TEST(Counters, ReferencesStayGoodWhileOthersAreAdded) {
  Counters counters;
  Counter& first = counters.get("a");
  for (int i = 0; i < 1000; ++i) counters.get("name" + std::to_string(i)).add();
  first.add(5);
  EXPECT_EQ(counters.snapshot().at("a"), 5U);
}

TEST(Counters, ConcurrentUseLosesNothing) {
  Counters counters;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&counters] {
        for (int i = 0; i < 5000; ++i) counters.get("n" + std::to_string(i % 7)).add();
      });
    }
  }
  uint64_t sum = 0;
  for (const auto& [name, value] : counters.snapshot()) sum += value;
  EXPECT_EQ(sum, 20000U);
}

}  // namespace
}  // namespace inductorfs
