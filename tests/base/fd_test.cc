// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "support/temporary_directory.h"

namespace inductorfs {
namespace {

using testing::TemporaryDirectory;

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST(Fd, ClosesWhenItGoesAndNotBefore) {
  int number = -1;
  {
    Fd fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    number = fd.get();
    Fd moved(std::move(fd));
    EXPECT_TRUE(is_open(number));
    EXPECT_EQ(moved.get(), number);
  }
  EXPECT_FALSE(is_open(number));
}

TEST(Fd, SelfMoveKeepsTheDescriptor) {
  Fd fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  Fd& same = fd;
  fd = std::move(same);
  EXPECT_TRUE(is_open(fd.get()));
}

TEST(Fd, AssignmentClosesTheOldOne) {
  Fd first(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int old = first.get();
  first = Fd(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(is_open(old));
  EXPECT_TRUE(first);
}

TEST(Fd, ReleaseGivesTheDescriptorAway) {
  Fd fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int number = fd.release();
  EXPECT_FALSE(fd);
  EXPECT_TRUE(is_open(number));
  ::close(number);
}

TEST(OpenAt, SetsCloseOnExec) {
  auto fd = open_at(AT_FDCWD, "/dev/null", O_RDONLY);
  ASSERT_TRUE(fd);
  EXPECT_EQ(::fcntl(fd->get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST(OpenAt, AbsentIsNotFoundWithoutText) {
  const TemporaryDirectory dir;
  const auto fd = open_at(AT_FDCWD, dir / "absent", O_RDONLY);
  ASSERT_FALSE(fd);
  EXPECT_EQ(fd.error().code(), ErrorCode::kNotFound);
  EXPECT_TRUE(fd.error().what().empty());
}

TEST(ReadFile, ReadsProcFilesWhoseSizeIsZero) {
  const auto bytes = read_file(AT_FDCWD, "/proc/self/status", 1 << 20);
  ASSERT_TRUE(bytes);
  EXPECT_NE(bytes->find("Pid:"), std::string::npos);
}

TEST(ReadFile, HoldsTheLimitExactly) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, dir / "f", std::string(100'000, 'x')));
  EXPECT_EQ(read_file(AT_FDCWD, dir / "f", 100'000)->size(), 100'000U);
  const auto over = read_file(AT_FDCWD, dir / "f", 99'999);
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().code(), ErrorCode::kTooLarge);
}

TEST(PreadFull, IsShortOnlyAtTheEnd) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, dir / "f", "0123456789"));
  auto fd = open_at(AT_FDCWD, dir / "f", O_RDONLY);
  std::string out(8, '?');
  EXPECT_EQ(pread_full(fd->get(), out.data(), 4, 3).value(), 4U);
  EXPECT_EQ(out.substr(0, 4), "3456");
  EXPECT_EQ(pread_full(fd->get(), out.data(), 8, 7).value(), 3U);
  EXPECT_EQ(pread_full(fd->get(), out.data(), 8, 50).value(), 0U);
}

TEST(PwriteFull, WritesAtTheOffsetAndReportsAFullDisk) {
  const TemporaryDirectory dir;
  auto fd = open_at(AT_FDCWD, dir / "f", O_RDWR | O_CREAT, 0600);
  ASSERT_TRUE(pwrite_full(fd->get(), "abc", 2));
  EXPECT_EQ(read_file(AT_FDCWD, dir / "f", 100).value(), std::string("\0\0abc", 5));
  auto full = open_at(AT_FDCWD, "/dev/full", O_WRONLY);
  EXPECT_EQ(write_full(full->get(), "x").error().code(), ErrorCode::kNoSpace);
}

TEST(WriteFileAtomically, ReplacesWholeAndLeavesNothingBeside) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, dir / "f", "old"));
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, dir / "f", "new", 0600));
  EXPECT_EQ(read_file(AT_FDCWD, dir / "f", 100).value(), "new");
  struct stat info {};
  ASSERT_EQ(::stat((dir / "f").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
}

TEST(WriteFileAtomically, FailureLeavesTheOldAndNothingBeside) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(make_directories(dir / "f/inner"));
  const auto written = write_file_atomically(AT_FDCWD, dir / "f", "new");
  ASSERT_FALSE(written) << "a directory cannot be replaced by a file";
  EXPECT_EQ(written.error().code(), ErrorCode::kIsDirectory);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
}

TEST(MakeDirectories, MakesAllAndAcceptsWhatIsThere) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(make_directories(dir / "a/b//c/", 0700));
  ASSERT_TRUE(make_directories(dir / "a/b/c"));
  EXPECT_TRUE(std::filesystem::is_directory(dir / "a/b/c"));
  EXPECT_TRUE(make_directories("/"));
}

TEST(MakeDirectories, AFileInTheWayIsNotDirectory) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, dir / "f", ""));
  EXPECT_EQ(make_directories(dir / "f").error().code(), ErrorCode::kNotDirectory);
  EXPECT_EQ(make_directories(dir / "f/g").error().code(), ErrorCode::kNotDirectory);
}

TEST(RemoveTree, RemovesAllButDoesNotFollowLinks) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(make_directories(dir / "tree/deep"));
  ASSERT_TRUE(make_directories(dir / "other"));
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, dir / "other/kept", "1"));
  std::filesystem::create_symlink(dir / "other", dir / "tree/link");
  ASSERT_TRUE(remove_tree(dir / "tree"));
  EXPECT_FALSE(std::filesystem::exists(dir / "tree"));
  EXPECT_TRUE(std::filesystem::exists(dir / "other/kept"));
  EXPECT_TRUE(remove_tree(dir / "tree")) << "absent is fine";
}

}  // namespace
}  // namespace inductorfs
