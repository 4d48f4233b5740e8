// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "vfs/faulty_remote.h"
#include "vfs/host.h"

/// Two hosts that have measured the same kernel: whose tuning counts.
namespace inductorfs::testing {
namespace {

class Winners : public ::testing::Test {
 protected:
  static HostOptions options(bool cluster_winners) {
    HostOptions result;
    result.cluster_winners = cluster_winners;
    return result;
  }
  /// Of a host whose publishes wait until the other's has come.
  [[nodiscard]] HostOptions late(HostOptions result) const {
    result.wrap_remote = [fault = fault_](auto inner) { return with_faults(std::move(inner), fault); };
    return result;
  }
  static std::string tuning(int warps) { return R"({"XBLOCK": 8, "num_warps": )" + std::to_string(warps) + "}"; }
  using Put = std::function<Result<void>(Host&, const std::string& bytes)>;
  /// Both measure before either knows of the other, and what `first` found comes to the cluster first.
  void measure(Host& first, Host& second, const Put& put) {
    fault_->refuse_publishes(true);
    ASSERT_TRUE(put(second, tuning(8)));
    ASSERT_TRUE(put(first, tuning(4)));
    ASSERT_TRUE(first.sync());
    fault_->refuse_publishes(false);
    ASSERT_TRUE(second.sync());
  }
  static Put publish(const std::string& path) {
    return [path](Host& host, const std::string& bytes) { return host.publish_file(path, bytes); };
  }
  static bool comes_to_read(Host& host, const std::string& path, const std::string& text) {
    return eventually([&] { return host.read(path).value_or("absent") == text; });
  }

  const std::string path_ = "ab/" + std::string(64, 'a') + ".best_config";
  std::shared_ptr<Fault> fault_ = std::make_shared<Fault>();
  std::shared_ptr<remote::MemoryCluster> cluster_ = remote::make_memory_cluster();
};

TEST_F(Winners, AreEachNodesOwnByDefault) {
  Host a(cluster_);
  Host b(cluster_, late({}));
  measure(a, b, publish(path_));
  ASSERT_TRUE(b.wait_for_entry(path_));
  EXPECT_EQ(b.read(path_).value_or("absent"), tuning(8));
  b.restart();
  EXPECT_EQ(b.read(path_).value_or("absent"), tuning(8));
}

TEST_F(Winners, AreTheClustersWhereThatIsAskedFor) {
  Host a(cluster_, options(true));
  Host b(cluster_, late(options(true)));
  measure(a, b, publish(path_));
  EXPECT_TRUE(comes_to_read(b, path_, tuning(4)));
  EXPECT_EQ(a.read(path_).value_or("absent"), tuning(4));
  b.restart();
  EXPECT_TRUE(comes_to_read(b, path_, tuning(4)));
}

TEST_F(Winners, AreTheClustersForTritonsTimingsToo) {
  Host a(cluster_, options(true));
  Host b(cluster_, late(options(true)));
  const std::string key = "triton/0/" + triton_key_of("kernel");
  measure(a, b, [&](Host& host, const std::string& bytes) {
    return host.triton_put(key, "add.autotune.json", bytes, own_pid());
  });
  EXPECT_TRUE(comes_to_read(b, key + "/add.autotune.json", tuning(4)));
}

TEST_F(Winners, OfAnEarlierMountGiveWayWhenItIsAskedForLater) {
  TemporaryDirectory store;
  Host a(cluster_);
  HostOptions kept = late({});
  kept.store = store.path();
  {
    Host b(cluster_, kept);
    measure(a, b, publish(path_));
    ASSERT_TRUE(b.wait_for_entry(path_));
  }
  kept.cluster_winners = true;
  Host b(cluster_, kept);
  EXPECT_TRUE(comes_to_read(b, path_, tuning(4)));
}

TEST_F(Winners, AreNoOtherFiles) {
  Host a(cluster_, options(true));
  Host b(cluster_, late(options(true)));
  const std::string path = in_code_directory(code_name("source") + ".cpp");
  measure(a, b, publish(path));
  ASSERT_TRUE(b.wait_for_entry(path));
  EXPECT_EQ(b.read(path).value_or("absent"), tuning(8)) << "any bytes of it are right";
}

}  // namespace
}  // namespace inductorfs::testing
