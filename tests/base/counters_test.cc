// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/counters.h"

#include <gtest/gtest.h>

#include <algorithm>
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

TEST(Histogram, CountsInTheFirstBucketThatHolds) {
  Histogram times;
  times.observe(0);
  times.observe(Histogram::kBounds[0]);      // a bound is in its own bucket, as `le` says
  times.observe(Histogram::kBounds[0] + 1);  // the next one
  times.observe(Histogram::kBounds.back() + 1);
  const auto now = times.snapshot();
  EXPECT_EQ(now.cumulative[0], 2U);
  EXPECT_EQ(now.cumulative[1], 3U);
  EXPECT_EQ(now.cumulative[Histogram::kBounds.size() - 1], 3U);
  EXPECT_EQ(now.count(), 4U);
  EXPECT_EQ(now.sum, 2 * Histogram::kBounds[0] + 1 + Histogram::kBounds.back() + 1);
  EXPECT_TRUE(std::is_sorted(Histogram::kBounds.begin(), Histogram::kBounds.end()));
}

TEST(Histogram, ConcurrentUseLosesNothingAndSnapshotsAgree) {
  Counters counters;
  Histogram& times = counters.histogram("fuse.request");
  EXPECT_EQ(&times, &counters.histogram("fuse.request"));
  {
    std::vector<std::jthread> threads;
    for (uint64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&times, t] {
        for (uint64_t i = 0; i < 20000; ++i) times.observe((i + t) % 200'000);
      });
    }
    for (uint64_t last = 0; last < 80000;) {
      const auto now = times.snapshot();
      ASSERT_TRUE(std::is_sorted(now.cumulative.begin(), now.cumulative.end()));
      ASSERT_GE(now.count(), last) << "a counter of Prometheus never falls";
      last = now.count();
    }
  }
  EXPECT_EQ(counters.histograms().at("fuse.request").count(), 80000U);
}

}  // namespace
}  // namespace inductorfs
