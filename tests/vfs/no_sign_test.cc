// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "vfs/host.h"

/// What is made under its final name, so that nothing shows when it is complete: it stays on its host, and that is
/// told.
namespace inductorfs::testing {
namespace {

constexpr pid_t kShell = 104;
const std::string kDirectory = "cache/kernel.gemm.0123456789abcdef0123456789abcdef";

class NoSign : public ::testing::Test {
 protected:
  static bool is_told(Host& host, const std::string& why) {
    const auto reasons = host.inspection().status().foreign_reasons;
    return std::ranges::any_of(reasons, [&](const auto& reason) { return reason.find(why) != std::string::npos; });
  }
  /// As cp(1) does.
  static void copy(Host& host, const std::string& file) {
    ASSERT_TRUE(host.make_directories(file.substr(0, file.rfind('/'))));
    ASSERT_TRUE(host.create(file, "copied"));
  }

  std::shared_ptr<remote::MemoryCluster> cluster = remote::make_memory_cluster();
  const std::string path = in_code_directory(code_name("code") + ".py");
};

TEST_F(NoSign, OfAFileIsTold) {
  Host a(cluster);
  copy(a, path);
  ASSERT_TRUE(a.sync());
  EXPECT_EQ(a.inspection().status().foreign, 1U);
  EXPECT_EQ(a.count("seal.foreign"), 1U) << "sync counts it";
  EXPECT_TRUE(is_told(a, "written in place under its final name"));
  EXPECT_NE(a.inspection().explain(path).why.find("rsync"), std::string::npos);
}

TEST_F(NoSign, OfADirectoryIsTold) {
  Host a(cluster);
  copy(a, kDirectory + "/kernel.cu");
  ASSERT_TRUE(a.sync());
  EXPECT_EQ(a.inspection().status().foreign, 1U);
  EXPECT_TRUE(is_told(a, "make it beside, then rename it"));
}

TEST_F(NoSign, IsNotToldWhenASignComes) {
  HostOptions options;
  options.quiet_time = std::chrono::seconds(1);
  Host a(cluster, options);
  copy(a, path);
  ASSERT_TRUE(a.rename(path, path + ".tmp"));
  ASSERT_TRUE(a.rename(path + ".tmp", path));
  ASSERT_TRUE(a.sync());
  EXPECT_EQ(a.catalog->publish_state(path)->state, catalog::PublishState::kPublished);
  const std::string library = in_code_directory(code_name("library") + ".main.so");
  const std::string build = library.substr(0, library.size() - 3) + "_CxxBuild";
  ASSERT_TRUE(a.make_directories(build));
  ASSERT_TRUE(a.create(library, "a long build"));
  ASSERT_TRUE(a.sync());
  EXPECT_EQ(a.inspection().status().foreign, 0U);
}

TEST_F(NoSign, TellsTheWriterWhereThatIsTheReason) {
  HostOptions options;
  options.writers = std::make_shared<FakeWriters>();
  options.writers->set(kShell, fingerprint::Match::kLater, fingerprint::Match::kDiffers);
  options.process = kShell;
  Host a(cluster, options);
  copy(a, path);
  ASSERT_TRUE(a.sync());
  EXPECT_EQ(a.inspection().status().foreign, 1U);
  EXPECT_FALSE(is_told(a, "written in place"));
}

}  // namespace
}  // namespace inductorfs::testing
