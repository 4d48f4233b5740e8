// SPDX-License-Identifier: Apache-2.0
#include "vfs/nodes/descriptor_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>

namespace inductorfs::testing {
namespace {

using vfs::NodeId;

Fd any_file() { return Fd(::open("/dev/null", O_RDWR | O_CLOEXEC)); }
bool is_open(int fd) { return ::fcntl(fd, F_GETFD) != -1; }

TEST(DescriptorCache, ClosesTheOneThatWasNotUsedForLongest) {
  vfs::DescriptorCache cache(2);
  cache.put(NodeId{1}, any_file(), false);
  cache.put(NodeId{2}, any_file(), false);
  const int second = cache.find(NodeId{2}, false)->file();
  ASSERT_TRUE(cache.find(NodeId{1}, false));

  cache.put(NodeId{3}, any_file(), false);

  EXPECT_TRUE(cache.find(NodeId{1}, false));
  EXPECT_FALSE(cache.find(NodeId{2}, false));
  EXPECT_FALSE(is_open(second));
}

TEST(DescriptorCache, GivesNoReadOnlyDescriptorToAWriter) {
  vfs::DescriptorCache cache(2);
  cache.put(NodeId{1}, any_file(), false);
  EXPECT_FALSE(cache.find(NodeId{1}, true));
  cache.put(NodeId{1}, any_file(), true);
  EXPECT_TRUE(cache.find(NodeId{1}, true));
  EXPECT_TRUE(cache.find(NodeId{1}, false)) << "a reader may use a writer's";
}

TEST(DescriptorCache, KeepsADescriptorOpenForWhoUsesIt) {
  vfs::DescriptorCache cache(1);
  auto used = cache.put(NodeId{1}, any_file(), false);
  const int fd = used->file();
  cache.put(NodeId{2}, any_file(), false);
  cache.drop(NodeId{1});
  EXPECT_TRUE(is_open(fd));
  used.reset();
  EXPECT_FALSE(is_open(fd));
}

TEST(DescriptorCache, ForgetsWhatIsDropped) {
  vfs::DescriptorCache cache(4);
  const int fd = cache.put(NodeId{1}, any_file(), true)->file();
  cache.drop(NodeId{1});
  cache.drop(NodeId{1});
  EXPECT_FALSE(cache.find(NodeId{1}, false));
  EXPECT_FALSE(is_open(fd));
}

}  // namespace
}  // namespace inductorfs::testing
