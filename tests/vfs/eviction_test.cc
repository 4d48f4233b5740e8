// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include "vfs/host.h"

namespace inductorfs::testing {
namespace {

class Eviction : public ::testing::Test {
 protected:
  static std::string code_path(const std::string& seed) { return in_code_directory(code_name(seed) + ".py"); }
  static void forget_all(Host& host, const std::string& path) {
    const auto found = host.look_up(path);
    if (found) host.names().forget(found->node, 1'000'000);
  }
  /// Publishes until nothing of what was there before can still be in the store.
  static void fill(Host& host, const std::string& with = "fill") {
    for (int i = 0; i < 12; ++i) {
      const std::string path = code_path(with + std::to_string(i));
      ASSERT_TRUE(host.publish_file(path, std::string(200'000, static_cast<char>('a' + i))));
      ASSERT_TRUE(host.sync());
      forget_all(host, path);
    }
  }
  static HostOptions small() {
    HostOptions options;
    options.store_limit = 1'000'000;
    return options;
  }

  std::shared_ptr<remote::MemoryCluster> cluster = remote::make_memory_cluster();
};

TEST_F(Eviction, LeavesAFileThatWasChangedSinceItWasSealed) {
  Host a(cluster, small());
  const std::string path = code_path("changed");
  ASSERT_TRUE(a.publish_file(path, std::string(200'000, 'x')));
  ASSERT_TRUE(a.sync());
  ASSERT_TRUE(a.append(path, "mine"));
  forget_all(a, path);

  fill(a);

  EXPECT_FALSE(a.store->find(codec::digest_of(std::string(200'000, 'x'))));
  EXPECT_EQ(a.read(path).value_or("absent"), std::string(200'000, 'x') + "mine");
}

TEST_F(Eviction, LeavesAFileThatReplacedTheSealedOne) {
  Host a(cluster, small());
  const std::string key = code_name("key", 'f');
  const std::string path = "fxgraph/" + key.substr(1, 2) + "/" + key + "/" + codec::torch_hash("\x80\x04graph.");
  ASSERT_TRUE(a.publish_file(path, "\x80\x04graph."));
  ASSERT_TRUE(a.sync());
  ASSERT_TRUE(a.publish_file(path, "no longer what the name says"));  // refused: it stays private
  ASSERT_TRUE(a.sync());
  forget_all(a, path);

  fill(a);

  EXPECT_EQ(a.read(path).value_or("absent"), "no longer what the name says");
}

TEST_F(Eviction, TakesAPublishedFileAndBringsItBackFromTheCluster) {
  Host a(cluster, small());
  const std::string path = code_path("published");
  ASSERT_TRUE(a.publish_file(path, std::string(200'000, 'x')));
  ASSERT_TRUE(a.sync());
  forget_all(a, path);

  fill(a);

  EXPECT_GT(a.count("view.dropped"), 0U);
  EXPECT_LE(a.store->usage().bytes, small().store_limit);
  EXPECT_EQ(a.read(path).value_or("absent"), std::string(200'000, 'x'));
}

TEST_F(Eviction, NeverTakesWhatAnInodeShows) {
  Host writer(cluster);
  const std::string path = code_path("shown");
  ASSERT_TRUE(writer.publish_file(path, std::string(200'000, 'x')));
  ASSERT_TRUE(writer.sync());
  Host a(cluster, small());
  ASSERT_TRUE(a.wait_for_entry(path));
  const auto open = a.look_up(path);
  ASSERT_TRUE(open);

  fill(a);

  std::string bytes(200'000, '\0');
  ASSERT_EQ(a.data().read(open->node, bytes.data(), bytes.size(), 0).value_or(0), bytes.size());
  EXPECT_EQ(bytes, std::string(200'000, 'x'));
  EXPECT_EQ(a.count("read.fetched_again"), 0U);
}

TEST_F(Eviction, KeepsAPendingFileReadableThatItsWriterPutAgain) {
  Host a(cluster);
  const std::string directory = "triton/0/" + triton_key_of("kernel");
  ASSERT_TRUE(a.triton_put(directory, "k.ttir", "earlier", own_pid()));
  const auto open = a.look_up(directory + "/k.ttir");
  ASSERT_TRUE(open);
  ASSERT_TRUE(a.triton_put(directory, "k.ttir", "later on", own_pid()));

  std::string bytes(20, '\0');
  bytes.resize(a.data().read(open->node, bytes.data(), bytes.size(), 0).value_or(0));
  EXPECT_EQ(bytes, "earlier");
  EXPECT_EQ(a.read(directory + "/k.ttir").value_or("absent"), "later on");
}

TEST_F(Eviction, TakesASetOfTheClusterOnlyWhenTheKernelHasLetAllItsNamesGo) {
  const std::string key = triton_key_of("kernel");
  const std::string directory = "triton/0/" + key;
  Host writer(cluster);
  ASSERT_TRUE(writer.triton_compile(directory, "first", own_pid()));
  ASSERT_TRUE(writer.sync());
  Host a(cluster, small());
  ASSERT_TRUE(a.wait_for_entry("triton/@/" + key + "/__grp__k.json"));
  const auto group = a.look_up(directory + "/__grp__k.json");
  ASSERT_TRUE(group);
  const auto child = codec::digest_of("first wrote k.ttir");

  fill(a);
  EXPECT_TRUE(a.store->find(child)) << "who has read the group file will want it";
  EXPECT_TRUE(eventually([&] { return a.kernel.told_name("__grp__k.json"); })) << "the kernel is asked to let go";

  a.names().forget(group->node, 1'000'000);
  fill(a, "more");
  EXPECT_FALSE(a.store->find(child));
  const auto again = a.read(directory + "/k.ttir");
  EXPECT_TRUE(again) << again.error().to_string() << "it comes from the cluster again";
}

TEST_F(Eviction, PublishesWhatWasFinishedInAFullStoreOnceThereIsRoom) {
  Host writer(cluster);
  Host a(cluster, small());
  std::vector<std::string> shown;
  for (int i = 0; i < 5; ++i) {
    shown.push_back(code_path("shown" + std::to_string(i)));
    ASSERT_TRUE(writer.publish_file(shown.back(), std::string(190'000, static_cast<char>('a' + i))));
    ASSERT_TRUE(writer.sync());
    ASSERT_TRUE(a.wait_for_entry(shown.back()));
    ASSERT_TRUE(a.look_up(shown.back()));
  }
  const std::string path = code_path("finished");
  ASSERT_TRUE(a.publish_file(path, std::string(190'000, 'x')));
  ASSERT_TRUE(eventually([&] { return a.count("seal.no_room") > 0; }));
  EXPECT_GT(a.inspection().status().unsealed, 0U);
  EXPECT_EQ(a.read(path).value_or("absent"), std::string(190'000, 'x'));
  EXPECT_EQ(a.count("seal.refused"), 0U);
  // Between two attempts; during one it waits.
  const auto synced = a.sync();
  ASSERT_FALSE(synced);
  EXPECT_EQ(synced.error().code(), ErrorCode::kNoSpace) << synced.error().to_string();
  EXPECT_NE(std::string(synced.error().what()).find(path), std::string::npos) << synced.error().to_string();

  for (const auto& name : shown) forget_all(a, name);

  EXPECT_TRUE(writer.wait_for_entry(path));
  // The attempt that published it ends later than others see it.
  EXPECT_TRUE(eventually([&] { return a.inspection().status().unsealed == 0; }));
  EXPECT_TRUE(a.sync());
}

}  // namespace
}  // namespace inductorfs::testing
