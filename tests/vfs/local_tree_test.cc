// SPDX-License-Identifier: Apache-2.0
#include "vfs/tree/local_tree.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "support/temporary_directory.h"
#include "vfs/tree/early_copy.h"

namespace inductorfs::testing {
namespace {

using Tree = vfs::LocalTree;

class LocalTree : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& bytes) {
    ASSERT_TRUE(write_file_atomically(tree.fd(), path, bytes));
  }
  Result<void> unshare(const std::string& path, std::optional<uint64_t> size = {}) {
    vfs::EarlyCopy none(size);
    return tree.unshare(path, none);
  }
  std::string text(const std::string& path) { return read_file(tree.fd(), path, 1 << 20).value_or("absent"); }

  TemporaryDirectory directory;
  Tree tree = Tree::open(directory / "local", ::getuid(), ::getgid(), 0750).value();
};

TEST_F(LocalTree, GivesItsRootAModeOnlyWhenToldTo) {
  ASSERT_TRUE(tree.dress_root());
  EXPECT_EQ(tree.stat("view").value()->st_mode & 07777, 0750U);
  write("view/file", "bytes");
  const auto again = Tree::open(directory / "local", ::getuid(), ::getgid(), 01777);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->stat("view").value()->st_mode & 07777, 0750U) << "a worker that goes on leaves it as it is";
  ASSERT_TRUE(again->dress_root());
  EXPECT_EQ(again->stat("view").value()->st_mode & 07777, 01777U);
  EXPECT_TRUE(again->stat("view/file").value());
}

TEST_F(LocalTree, AnswersNothingForWhatIsNotThere) {
  EXPECT_FALSE(tree.stat("view/none").value());
  write("view/file", "bytes");
  EXPECT_FALSE(tree.stat("view/file/below").value()) << "below a file there is nothing, which is no error";
  EXPECT_TRUE(tree.list("view/none").value().empty());
  EXPECT_TRUE(tree.unlink("view/none"));
}

TEST_F(LocalTree, FollowsNoSymbolicLinkOutOfTheView) {
  ASSERT_EQ(::symlinkat("/etc/passwd", tree.fd(), "view/link"), 0);
  EXPECT_FALSE(tree.open_file("view/link", false));
  EXPECT_FALSE(tree.read_file("view/link", 1 << 20));
  EXPECT_TRUE(S_ISLNK(tree.stat("view/link").value()->st_mode));
  ASSERT_EQ(::symlinkat("/etc", tree.fd(), "view/directory"), 0);
  EXPECT_FALSE(tree.list("view/directory"));
}

TEST_F(LocalTree, OpensNoFifo) {
  // open(2) would wait until somebody opens the other end, and nobody does.
  ASSERT_EQ(::mkfifoat(tree.fd(), "view/fifo", 0644), 0);
  for (const bool writable : {false, true}) {
    const auto opened = tree.open_file("view/fifo", writable);
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code(), ErrorCode::kInvalid);
  }
  EXPECT_FALSE(unshare("view/fifo"));
}

TEST_F(LocalTree, MakesMissingDirectoriesOnly) {
  const vfs::RootAccess access{::geteuid(), ::getegid(), 0750};
  ASSERT_TRUE(tree.make_view_directories("a/b/c", access));
  EXPECT_EQ(tree.stat("view/a/b/c").value()->st_mode & 07777, 0750U);
  ASSERT_EQ(::fchmodat(tree.fd(), "view/a", 0700, 0), 0);
  ASSERT_TRUE(tree.make_view_directories("a/b/d", access));
  EXPECT_EQ(tree.stat("view/a").value()->st_mode & 07777, 0700U);
  EXPECT_TRUE(tree.make_view_directories("", access));
}

TEST_F(LocalTree, UnsharesAnInodeWithAllThatBelongsToIt) {
  write("view/file", "0123456789");
  ASSERT_EQ(::linkat(tree.fd(), "view/file", tree.fd(), "blob", 0), 0);
  ASSERT_EQ(::fchmodat(tree.fd(), "view/file", 0640, 0), 0);
  const struct timespec times[2] = {{1'000'000'000, 5}, {1'100'000'000, 7}};
  ASSERT_EQ(::utimensat(tree.fd(), "view/file", times, 0), 0);
  auto file = tree.open_file("view/file", true);
  ASSERT_TRUE(file);
  ASSERT_TRUE(tree.set_seal(file->get(), "abc"));
  ASSERT_EQ(::fsetxattr(file->get(), "user.mine", "1", 1, 0), 0);

  ASSERT_TRUE(unshare("view/file"));

  const auto status = *tree.stat("view/file").value();
  EXPECT_NE(status.st_ino, tree.stat("blob").value()->st_ino);
  EXPECT_EQ(status.st_mode & 07777, 0640U);
  EXPECT_EQ(status.st_mtim.tv_sec, 1'100'000'000);
  EXPECT_EQ(status.st_mtim.tv_nsec, 7);
  EXPECT_EQ(text("view/file"), "0123456789");
  auto copy = tree.open_file("view/file", false);
  EXPECT_FALSE(tree.seal_of(copy->get())) << "the copy is nobody's blob";
  EXPECT_EQ(::fgetxattr(copy->get(), "user.mine", nullptr, 0), 1);
  EXPECT_EQ(tree.seal_of(file->get()).value_or("none"), "abc");
  EXPECT_TRUE(tree.is_empty("orphans"));
}

TEST_F(LocalTree, CopiesNoMoreThanATruncationKeeps) {
  write("view/file", "0123456789");
  ASSERT_TRUE(unshare("view/file", 4));
  EXPECT_EQ(text("view/file"), "0123");
}

TEST_F(LocalTree, PutsAsideAnEarlierCopyThatFailed) {
  write("view/file", "bytes");
  write("orphans/copy-" + std::to_string(tree.stat("view/file").value()->st_ino), "half");
  ASSERT_TRUE(unshare("view/file"));
  EXPECT_EQ(text("view/file"), "bytes");
}

TEST_F(LocalTree, RenamesWithoutReplacingWhenAsked) {
  write("view/a", "a");
  write("view/b", "b");
  const auto kept = tree.rename("view/a", "view/b", 1 /* RENAME_NOREPLACE */);
  ASSERT_FALSE(kept);
  EXPECT_EQ(kept.error().code(), ErrorCode::kExists);
  ASSERT_TRUE(tree.rename("view/a", "view/b"));
  EXPECT_EQ(text("view/b"), "a");
}

}  // namespace
}  // namespace inductorfs::testing
