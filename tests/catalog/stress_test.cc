// SPDX-License-Identifier: Apache-2.0
// Large scopes, and everything at once.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "catalog/catalog_fixture.h"

namespace inductorfs::catalog {
namespace {

class Stress : public CatalogFixture {
 protected:
  using Scopes = std::vector<remote::ScopeId>;
};

TEST_F(Stress, AMillionEntriesStopAtTheLimit) {
  options_.entry_limit = 1'000;
  remote::Delta flood{true, {}, {}, {1, "nonce-1"}};
  constexpr size_t kFlood = 1'000'000;
  for (size_t i = 0; i < kFlood; ++i) {
    flood.set.push_back({"d" + std::to_string(i % 7) + "/" + std::to_string(i), {}, 1, 0644, 0, ""});
  }
  remote_.script("aa", std::move(flood));
  Catalog& catalog = start();
  EXPECT_TRUE(eventually([&] { return counted("catalog.rejected") == kFlood - 1'000; }));
  EXPECT_EQ(catalog.status().entries, 1'000U);
}

TEST_F(Stress, ReadsGoOnWhileALargeSnapshotComes) {
  constexpr size_t kMany = 200'000;
  remote_.set("bb", elsewhere("b/known", "1"));
  Catalog& catalog = open();
  // What reads wait for is a piece of the snapshot, after which it is told what the piece changed.
  std::atomic<uint64_t> reads = 0;
  std::atomic<size_t> pieces = 0, largest = 0, came = 0, kept_out = 0;
  catalog.start(
      [&](const std::vector<std::string>& paths) {
        largest = std::max(largest.load(), paths.size());
        came += paths.size();
        if (++pieces % 50 != 0) return;
        const uint64_t before = reads;
        if (!eventually([&] { return reads > before; })) ++kept_out;
      },
      [](const PublishReport&) {});
  ASSERT_TRUE(catalog.wait_synced(Deadline::after(kPatience)));
  std::jthread reader([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      EXPECT_TRUE(catalog.find("b/known"));
      ++reads;
    }
  });
  remote::Delta snapshot{true, {}, {}, {1, "nonce-1"}};
  for (size_t i = 0; i < kMany; ++i) snapshot.set.push_back({"d/" + std::to_string(i), {}, 1, 0644, 0, "o"});
  remote_.script("aa", std::move(snapshot));
  EXPECT_TRUE(eventually([&] { return came > kMany; }));
  EXPECT_LE(largest, 1'000U);
  EXPECT_EQ(kept_out, 0U);
  catalog.stop();
}

TEST_F(Stress, ALargeScopeGoesAndReturnsWhileReadsGoOn) {
  constexpr int kMany = 20'000;
  remote::Delta snapshot{true, {}, {}, {1, "nonce-1"}};
  for (int i = 0; i < kMany; ++i) snapshot.set.push_back(elsewhere("d/" + std::to_string(i), "1"));
  remote_.set("bb", elsewhere("b/known", "1"));
  remote_.script("aa", std::move(snapshot));
  Catalog& catalog = start_synced();
  ASSERT_EQ(catalog.status().entries, kMany + 1U);
  const uint64_t resets = counted("catalog.resets");
  std::atomic<bool> over = false;
  std::atomic<uint64_t> missed = 0;
  std::jthread reader([&] {
    while (!over) missed += catalog.find("b/known") ? 0 : 1;
  });
  catalog.follow({"bb"});
  EXPECT_EQ(catalog.status().entries, 1U);
  catalog.follow({"aa", "bb"});
  EXPECT_TRUE(eventually([&] { return catalog.status().entries == kMany + 1U; }));
  over = true;
  reader.join();
  EXPECT_EQ(missed, 0U);
  EXPECT_TRUE(catalog.wait_synced(Deadline::after(kPatience)));
  EXPECT_EQ(counted("catalog.resets"), resets);
}

/// Everything at once; in the end what is seen must be what the cluster has, but for what was hidden.
TEST_F(Stress, ConcurrentChangesOfEveryKindEndInTheClustersState) {
  options_.poll_interval = Milliseconds(1);
  Catalog& catalog = start_synced();
  const Scopes all{"aa", "bb", "cc", "dd"};
  std::vector<std::jthread> threads;
  for (unsigned t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (unsigned i = 0; i < 60; ++i) {
        Scopes some;
        for (size_t s = 0; s < all.size(); ++s) {
          if (((i * 7 + t * 5) >> s) % 2 == 0) some.push_back(all[s]);
        }
        catalog.follow(some);
      }
    });
  }
  threads.emplace_back([&] {
    for (int i = 0; i < 200; ++i) {
      const std::string name = std::to_string(i % 20);
      remote_.set(all[static_cast<size_t>(i) % 4], elsewhere(i % 4 == 1 ? "b/" + name : name, std::to_string(i)));
      if (i % 9 == 0) remote_.remove("cc", name);
    }
  });
  threads.emplace_back([&] {
    for (int i = 0; i < 40; ++i) {
      EXPECT_TRUE(catalog.enqueue(plain("mine/" + std::to_string(i), "bytes")));
      catalog.hide("hidden/" + std::to_string(i));
      (void)catalog.list("");
      (void)catalog.newest(5);
    }
  });
  threads.clear();
  catalog.follow(all);
  ASSERT_TRUE(catalog.drain(Deadline::after(kPatience)));
  ASSERT_TRUE(catalog.wait_synced(Deadline::after(kPatience)));
  std::map<std::string, codec::Digest> expected;
  remote_.state.with([&](FakeRemote::State& now) {
    for (auto scope = all.rbegin(); scope != all.rend(); ++scope) {
      for (const auto& [path, entry] : now.scopes[*scope].entries) expected[path] = entry.digest;
    }
  });
  EXPECT_TRUE(eventually([&] { return catalog.status().entries == expected.size(); }));
  for (const auto& one : expected) {  // no structured binding: clang 14 captures none
    EXPECT_TRUE(eventually([&] {
      const auto known = catalog.find(one.first);
      return known && known->entry.digest == one.second;
    })) << one.first;
  }
}

}  // namespace
}  // namespace inductorfs::catalog
