// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "inductorfs/layout/start_list.h"
#include "vfs/host.h"

/// Start lists, over two and three hosts.
namespace inductorfs::testing {
namespace {

/// The key directory of a graph, and the one candidate in it.
std::string graph(int number) {
  const std::string key = code_name(std::to_string(number), 'f');
  return "fxgraph/" + key.substr(1, 2) + "/" + key;
}
std::string content(int number) { return "graph " + std::to_string(number); }
std::string candidate(int number) { return graph(number) + "/" + codec::torch_hash(content(number)); }

std::vector<std::string> graphs(int first, int last) {
  std::vector<std::string> keys;
  for (int i = first; i < last; ++i) keys.push_back(graph(i));
  return keys;
}

/// Hosts of one cluster whose artefacts are those of two jobs, of 12 and 30 keys, published by one writer together.
class StartsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 42; ++i) ASSERT_TRUE(a_.publish_file(candidate(i), content(i)));
    ASSERT_TRUE(a_.sync());
    options_.prefetch_bytes = 1ULL << 30;
  }
  static vfs::JobStart first_job() { return {"", graphs(0, 12), {graph(0), graph(1)}}; }
  /// A host that was mounted before the artefacts came, and has none of them.
  std::unique_ptr<Host> fresh() {
    HostOptions none = options_;
    none.prefetch_bytes = 0;
    return std::make_unique<Host>(cluster_, none);
  }
  static bool wait_for_list(Host& host, const std::string& key) {
    return eventually([&] { return host.catalog->start_list("", key).has_value(); });
  }

  std::shared_ptr<remote::MemoryCluster> cluster_ = remote::make_memory_cluster();
  Host a_{cluster_};
  HostOptions options_;
};

/// Mounted with nothing to fetch but what starts show: the newest of all were evicted, as if the store were small.
class Foreseen : public StartsTest {
 protected:
  void SetUp() override {
    StartsTest::SetUp();
    ASSERT_TRUE(a_.file_system->note_start(first_job()));
    ASSERT_TRUE(a_.sync() && wait_for_list(a_, graph(0)));
    b_ = std::make_unique<Host>(cluster_, options_);
    ASSERT_TRUE(wait_for_list(*b_, graph(0)));
    ASSERT_TRUE(eventually([&] { return b_->count("fetch.blobs") == 42; })) << "the newest, after the mount";
    for (int i = 0; i < 42; ++i) b_->store->discard(b_->catalog->find(candidate(i))->entry.digest);
  }
  std::unique_ptr<Host> b_;
};

TEST_F(Foreseen, IsWhatTheJobAskedForAndNothingElse) {
  ASSERT_TRUE(b_->exists(candidate(1)));
  EXPECT_TRUE(eventually([&] { return b_->count("fetch.blobs") >= 42 + 12; })) << b_->count("fetch.blobs");
  EXPECT_EQ(b_->count("starts.lists"), 1U);
  EXPECT_EQ(b_->read(candidate(11)).value_or("absent"), content(11));
  // The one that was asked for may be here before the list is.
  const uint64_t foreseen = b_->count("starts.foreseen");
  EXPECT_TRUE(foreseen == 11 || foreseen == 12) << foreseen;
  EXPECT_EQ(b_->count("starts.used"), foreseen - 10);
  EXPECT_GE(b_->count("starts.used_bytes"), content(11).size());
  EXPECT_EQ(b_->count("fetch.blobs"), 42U + 12 + 1) << "with the list, and none of the other job";
  for (int i = 12; i < 42; ++i) {
    EXPECT_FALSE(b_->store->find(b_->catalog->find(candidate(i))->entry.digest)) << i << ", of the other job";
  }
}

TEST_F(StartsTest, NoMountShowsALocalOrAForeignOne) {
  ASSERT_TRUE(a_.file_system->note_start(first_job()));
  ASSERT_TRUE(a_.sync() && wait_for_list(a_, graph(0)));
  const auto b = fresh();
  ASSERT_TRUE(wait_for_list(*b, graph(0)));
  const std::string path = layout::start_list_path(graph(0));
  EXPECT_FALSE(b->exists(path));
  EXPECT_FALSE(b->exists(".starts"));
  const auto names = b->list("").value();
  EXPECT_EQ(std::ranges::count(names, ".starts"), 0);
  EXPECT_FALSE(b->catalog->find(path));
  for (const auto& known : b->catalog->newest(100)) EXPECT_FALSE(layout::is_start_list(known.entry.path));
  // A program's file of such a name is a file of this host.
  const std::string forged = layout::start_list_path(graph(30));
  ASSERT_TRUE(b->publish_file(forged, layout::start_list_text({{graph(0), 0}})));
  ASSERT_TRUE(b->sync());
  EXPECT_TRUE(b->exists(forged));
  EXPECT_FALSE(b->catalog->start_list("", graph(30)));
  EXPECT_EQ(b->count("publish.published"), 0U);
}

TEST_F(StartsTest, AreNotedOnceAndOnlyWhereTheyTellSomething) {
  vfs::JobStart small{"", graphs(0, 7), {graph(0)}};
  EXPECT_TRUE(a_.file_system->note_start(small));
  EXPECT_EQ(a_.count("starts.published"), 0U) << "too few";
  EXPECT_TRUE(a_.file_system->note_start({"", graphs(100, 120), {graph(100)}}));
  EXPECT_EQ(a_.count("starts.published"), 0U) << "the cluster has none of them";
  ASSERT_TRUE(a_.file_system->note_start(first_job()));
  ASSERT_TRUE(a_.sync() && wait_for_list(a_, graph(0)));
  EXPECT_EQ(a_.count("starts.published"), 1U);
  vfs::JobStart again = first_job();
  std::ranges::reverse(again.keys);
  ASSERT_TRUE(a_.file_system->note_start(again));
  EXPECT_EQ(a_.count("starts.published"), 1U) << "threads ask in another order each time";
  again.keys.push_back(graph(40));
  ASSERT_TRUE(a_.file_system->note_start(again));
  EXPECT_EQ(a_.count("starts.published"), 2U);
}

TEST_F(StartsTest, WaitForWhatIsOnItsWayToTheCluster) {
  a_.catalog->freeze(true);
  ASSERT_TRUE(a_.publish_file(candidate(50), content(50)));
  vfs::JobStart start = first_job();
  start.keys.push_back(graph(50));
  EXPECT_TRUE(eventually([&] { return !a_.file_system->note_start(start); }));
  a_.catalog->freeze(false);
  ASSERT_TRUE(a_.sync());
  EXPECT_TRUE(a_.file_system->note_start(start));
  EXPECT_EQ(a_.count("starts.published"), 1U);
}

}  // namespace
}  // namespace inductorfs::testing
