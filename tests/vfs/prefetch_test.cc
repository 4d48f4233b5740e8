// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "vfs/host.h"

/// What is fetched before anybody asks, over two hosts.
namespace inductorfs::testing {
namespace {

std::string code(int number) { return in_code_directory(code_name(std::to_string(number)) + ".cpp"); }

TEST(Companions, AreAllOfAJobAndNotItsNewestAlone) {
  constexpr uint64_t kFiles = 1'500;
  const auto cluster = remote::make_memory_cluster();
  Host a{cluster};
  HostOptions options;
  options.prefetch_bytes = 1ULL << 30;
  const auto publish = [&](int number) { return a.publish_file(code(number), "// " + std::to_string(number)); };
  ASSERT_TRUE(publish(0) && a.sync());
  Host b{cluster, options};
  ASSERT_TRUE(eventually([&] { return b.count("fetch.blobs") == 1; })) << "the newest, once, after the mount";
  for (int i = 1; i < static_cast<int>(kFiles); ++i) ASSERT_TRUE(publish(i));
  ASSERT_TRUE(a.sync() && b.wait_for_entry(code(kFiles - 1)));
  ASSERT_EQ(b.count("fetch.blobs"), 1U);
  // The directory is enough: by the time that the file is asked for it may be here.
  ASSERT_TRUE(b.exists(code(700).substr(0, code(700).find('/'))));
  EXPECT_TRUE(eventually([&] { return b.count("fetch.blobs") == kFiles; })) << b.count("fetch.blobs");
  EXPECT_EQ(b.read(code(700)).value_or("absent"), "// 700");
}

}  // namespace
}  // namespace inductorfs::testing
