// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/mount_paths.h"

#include <gtest/gtest.h>

namespace inductorfs {
namespace {

constexpr const char* kRoot = "20 1 254:0 / / rw - ext4 /dev/vda rw\n";
constexpr const char* kUsual = "/var/cache/inductor/triton/0/KEY";

std::string where(const std::string& mounts, std::string_view path = "triton/0/KEY",
                  std::string_view preferred = kUsual) {
  const MountPaths paths(parse_mount_table(mounts), "0:33");
  return paths.path_of(path, preferred).value_or("nowhere");
}

std::string mount(int id, int parent, const std::string& root, const std::string& at,
                  const std::string& device = "0:33") {
  return std::to_string(id) + " " + std::to_string(parent) + " " + device + " " + root + " " + at +
         " rw,nosuid - fuse.inductorfs inductorfs rw,user_id=0\n";
}

TEST(MountPaths, FollowTheBindMountOfAContainer) {
  EXPECT_EQ(where(kRoot + mount(21, 20, "/", "/cache")), "/cache/triton/0/KEY");
  EXPECT_EQ(where(kRoot + mount(21, 20, "/", "/cache"), ""), "/cache");
  EXPECT_EQ(where(kRoot + mount(21, 20, "/", "/cache", "0:34")), "nowhere") << "another mount";
  EXPECT_EQ(where(kRoot), "nowhere");
  EXPECT_EQ(where(""), "nowhere");
}

TEST(MountPaths, KnowADirectoryThatIsShownAlone) {
  const std::string table = kRoot + mount(21, 20, "/alice", "/cache");
  EXPECT_EQ(where(table, "alice/triton/0/KEY"), "/cache/triton/0/KEY");
  EXPECT_EQ(where(table, "alice"), "/cache");
  EXPECT_EQ(where(table, "alice2/triton/0/KEY"), "nowhere");
  EXPECT_EQ(where(table, "triton/0/KEY"), "nowhere");
}

TEST(MountPaths, TakeTheUsualPathOrElseTheDeepestMount) {
  const std::string binds = mount(21, 20, "/", "/all") + mount(22, 20, "/triton", "/kernels");
  EXPECT_EQ(where(kRoot + binds), "/kernels/0/KEY");
  EXPECT_EQ(where(kRoot + binds, "ab/code.py"), "/all/ab/code.py");
  EXPECT_EQ(where(kRoot + binds + mount(23, 20, "/", "/var/cache/inductor")), kUsual);
}

TEST(MountPaths, UndoTheKernelsEscapes) {
  EXPECT_EQ(where(kRoot + mount(21, 20, "/a\\040b", "/my\\011cache\\134"), "a b/triton/0/KEY"),
            "/my\tcache\\/triton/0/KEY");
}

TEST(MountPaths, LeaveOutWhatWasDeleted) {
  EXPECT_EQ(where(kRoot + mount(21, 20, "/", "/cache//deleted")), "nowhere");
  EXPECT_EQ(where(kRoot + mount(21, 20, "/alice//deleted", "/cache"), "alice/triton/0/KEY"), "nowhere");
}

TEST(MountPaths, LeaveOutWhatAnotherMountCovers) {
  const std::string ours = kRoot + mount(21, 20, "/", "/cache");
  EXPECT_EQ(where(ours + mount(22, 21, "/", "/cache", "0:40")), "nowhere") << "over it";
  EXPECT_EQ(where(ours + mount(22, 20, "/", "/", "0:40")), "nowhere") << "over the root, where it was";
  EXPECT_EQ(where(ours + mount(22, 21, "/", "/cache/triton", "0:40")), "nowhere") << "over a part of it";
  EXPECT_EQ(where(ours + mount(22, 21, "/", "/cache/triton", "0:40"), "tritons/0"), "/cache/tritons/0");
  EXPECT_EQ(where(ours + mount(22, 21, "/", "/cache", "0:40") + mount(23, 22, "/", "/cache")), "/cache/triton/0/KEY")
      << "the uppermost is ours again";
  EXPECT_EQ(where(ours + mount(22, 20, "/", "/other", "0:40") + mount(23, 22, "/triton", "/other/k")), "/other/k/0/KEY")
      << "a deeper mount";
}

TEST(MountPaths, KnowAProcessWhoseRootIsNoMount) {
  EXPECT_EQ(where(mount(31, 7, "/", "/cache") + mount(32, 7, "/", "/proc", "0:21")), "/cache/triton/0/KEY");
  EXPECT_EQ(where(mount(31, 31, "/", "/")), "/triton/0/KEY") << "the root of all, and it is ours";
}

TEST(MountPaths, EndWithAListThatLeadsInACircle) {
  EXPECT_EQ(where(mount(21, 22, "/", "/cache") + mount(22, 21, "/", "/cache")), "nowhere");
}

}  // namespace
}  // namespace inductorfs
