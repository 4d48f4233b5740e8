// SPDX-License-Identifier: Apache-2.0
// What the file system tells of uses (FileSystemOptions::used).
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "inductorfs/base/guarded.h"
#include "inductorfs/codec/digest.h"
#include "vfs/host.h"
#include "vfs/process.h"

namespace inductorfs::testing {
namespace {

using vfs::UseKind;

class Uses : public ::testing::Test {
 protected:
  HostOptions recording() {
    HostOptions options;
    options.used = [this](vfs::UseNotice&& notice) {
      notices.with([&](auto& list) { list.push_back(std::move(notice)); });
    };
    return options;
  }
  /// The kinds of uses of a path so far.
  std::vector<UseKind> of(const std::string& path) {
    std::vector<UseKind> kinds;
    notices.with([&](const auto& list) {
      for (const vfs::UseNotice& one : list) {
        if (one.path == path) kinds.push_back(one.use);
      }
    });
    return kinds;
  }
  std::shared_ptr<remote::MemoryCluster> cluster = remote::make_memory_cluster();
  Guarded<std::vector<vfs::UseNotice>> notices;
  const std::string name = in_code_directory(code_name("code") + ".py");
};

TEST_F(Uses, TellAMissWhoMadeItAndThatItIsHere) {
  Host a(cluster, recording());
  ASSERT_TRUE(a.make_directories(name.substr(0, 2)));
  EXPECT_FALSE(a.exists(name));
  ASSERT_TRUE(a.publish_file(name, "print()"));
  EXPECT_TRUE(a.exists(name));
  const std::vector<UseKind> kinds = of(name);
  ASSERT_GE(kinds.size(), 3U);
  EXPECT_EQ(kinds.front(), UseKind::kNothing);
  EXPECT_EQ(std::count(kinds.begin(), kinds.end(), UseKind::kMade), 1);
  EXPECT_EQ(kinds.back(), UseKind::kLocal);
  EXPECT_TRUE(of(name.substr(0, 2)).empty()) << "a directory on the way is no key";
  EXPECT_FALSE(a.exists("some/notes.txt"));
  EXPECT_TRUE(of("some/notes.txt").empty());
}

TEST_F(Uses, TellWhoWaitedForBytesAndForHowMany) {
  Host a(cluster);
  Host b(cluster, recording());
  ASSERT_TRUE(a.publish_file(name, "print()"));
  ASSERT_TRUE(a.sync());
  ASSERT_TRUE(b.wait_for_entry(name));
  EXPECT_TRUE(b.exists(name));
  EXPECT_EQ(of(name), std::vector<UseKind>{UseKind::kFetched});
  const auto fetched = notices.with([](const auto& list) { return list.back(); });
  EXPECT_EQ(fetched.bytes, 7U);
  EXPECT_EQ(fetched.digest, codec::digest_of("print()"));
  EXPECT_GT(fetched.waited.count(), 0);
  EXPECT_EQ(fetched.thread, own_pid());
  EXPECT_TRUE(b.exists(name));
  EXPECT_EQ(of(name).back(), UseKind::kCluster);
}

TEST_F(Uses, TellThatTheClusterHadLostIt) {
  Host a(cluster);
  Host b(cluster, recording());
  ASSERT_TRUE(a.publish_file(name, "print()"));
  ASSERT_TRUE(a.sync());
  ASSERT_TRUE(b.wait_for_entry(name));
  remote::evict_blob(*cluster, codec::digest_of("print()"));
  EXPECT_FALSE(b.exists(name));
  EXPECT_EQ(of(name), std::vector<UseKind>{UseKind::kLost});
}

TEST_F(Uses, TellThatItDoesNotFit) {
  Host a(cluster);
  HostOptions options = recording();
  options.check = [](const layout::Classification&, std::string_view, uint64_t) -> Result<void> {
    return fail(ErrorCode::kNotSupported, "another machine's");
  };
  Host b(cluster, options);
  ASSERT_TRUE(a.publish_file(name, "print()"));
  ASSERT_TRUE(a.sync());
  ASSERT_TRUE(b.wait_for_entry(name));
  EXPECT_FALSE(b.exists(name));
  EXPECT_FALSE(b.exists(name)) << "hidden by now";
  EXPECT_EQ(of(name), (std::vector<UseKind>{UseKind::kUnfit, UseKind::kUnfit}));
}

TEST_F(Uses, TellOfAWholeTritonKey) {
  const Process one;
  Host a(cluster, recording());
  Host b(cluster, recording());
  const std::string directory = "triton/0/" + std::string(52, 'A');
  const std::string group = directory + "/__grp__k.json";
  ASSERT_TRUE(a.triton_compile(directory, "first", one.pid()));
  ASSERT_TRUE(a.sync());
  std::vector<UseKind> kinds = of(group);
  EXPECT_EQ(std::count(kinds.begin(), kinds.end(), UseKind::kMade), 1);
  notices.with([](auto& list) { list.clear(); });
  ASSERT_TRUE(b.wait_for_entry("triton/@/" + std::string(52, 'A') + "/__grp__k.json"));
  EXPECT_TRUE(b.exists(group));
  EXPECT_EQ(of(group), std::vector<UseKind>{UseKind::kFetched});
}

}  // namespace
}  // namespace inductorfs::testing
