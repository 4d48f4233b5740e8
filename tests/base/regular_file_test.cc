// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/regular_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <filesystem>
#include <functional>
#include <thread>

#include "inductorfs/base/call_filter.h"
#include "inductorfs/base/sanitized.h"
#include "support/emulator.h"
#include "support/temporary_directory.h"

namespace inductorfs {
namespace {

using testing::TemporaryDirectory;

TEST(RegularFile, RefusesWhatIsNoFileOrTooLarge) {
  const TemporaryDirectory temporary;
  const std::string fifo = temporary / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, temporary / "file", "12345"));
  std::filesystem::create_symlink(fifo, temporary / "link");
  EXPECT_EQ(read_regular(temporary / "file", 5).value_or(""), "12345");
  EXPECT_EQ(read_regular(temporary / "file", 4).error().code(), ErrorCode::kTooLarge);
  EXPECT_EQ(read_regular(temporary / "absent", 4).error().code(), ErrorCode::kNotFound);
  for (const std::string& path : {fifo, temporary / "link", std::string("/dev/zero"), temporary.path()}) {
    EXPECT_EQ(read_regular(path, 100).error().code(), ErrorCode::kInvalid) << path;
  }
}

/// Opening a device may already do something: rewind a tape, hang up a line, take the other end of a FIFO.
TEST(RegularFile, OpensNothingElse) {
  const TemporaryDirectory temporary;
  const std::string fifo = temporary / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const Fd watch(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  ASSERT_GE(inotify_add_watch(watch.get(), fifo.c_str(), IN_OPEN), 0);
  const auto opens = [&watch] {
    char event[sizeof(inotify_event) + NAME_MAX + 1];
    return ::read(watch.get(), event, sizeof event) > 0;
  };
  EXPECT_EQ(read_regular(fifo, 100).error().code(), ErrorCode::kInvalid);
  EXPECT_FALSE(opens());
  ASSERT_TRUE(open_at(AT_FDCWD, fifo, O_RDONLY | O_NONBLOCK));
  EXPECT_TRUE(opens()) << "the watch sees it";
}

TEST(RegularFile, IsWhatReadFileReadsToo) {
  const TemporaryDirectory temporary;
  const std::string fifo = temporary / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& path : {fifo, std::string("/dev/zero")}) {
    const auto bytes = read_file(AT_FDCWD, path, 100);
    ASSERT_FALSE(bytes);
    EXPECT_EQ(bytes.error().what(), path + " is not a regular file; name a regular file");
  }
}

/// With openat2(2), and without it: in a thread that may only read.
class FileOfAnotherRoot : public ::testing::TestWithParam<bool> {
 protected:
  static void look(const std::function<void()>& act) {
    if (GetParam()) return act();
    const auto filter = CallFilter::for_reading();
    ASSERT_TRUE(filter);
    std::jthread([&] {
      ASSERT_TRUE(filter->apply());
      act();
    }).join();
  }
};

#ifdef INDUCTORFS_SANITIZED
INSTANTIATE_TEST_SUITE_P(, FileOfAnotherRoot, ::testing::Values(true));
#else
INSTANTIATE_TEST_SUITE_P(, FileOfAnotherRoot, ::testing::Bool());
#endif

TEST_P(FileOfAnotherRoot, IsLookedForBelowIt) {
  INDUCTORFS_NEEDS_OPENAT2();
  const TemporaryDirectory temporary;
  std::filesystem::create_directories(temporary / "root/a");
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, temporary / "root/a/file", "inside"));
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, temporary / "outside", "outside"));
  std::filesystem::create_symlink("/a/file", temporary / "root/link");
  std::filesystem::create_symlink(temporary / "outside", temporary / "root/stray");
  std::filesystem::create_symlink("/proc/self/root", temporary / "root/magic");
  std::filesystem::create_symlink("loop", temporary / "root/loop");
  std::filesystem::create_symlink("a/", temporary / "root/directory");
  std::filesystem::create_symlink("../../a", temporary / "root/a/up");
  std::filesystem::create_symlink("/a/file", temporary / "root/a/absolute");
  const auto root = open_at(AT_FDCWD, temporary / "root", O_PATH | O_DIRECTORY);
  const auto top = open_at(AT_FDCWD, "/", O_PATH | O_DIRECTORY);
  ASSERT_TRUE(root && top);
  look([&] {
    const auto open_inside = [&root](const std::string& path, uint64_t limit) -> Result<Fd> {
      INDUCTORFS_TRY_ASSIGN(const auto found, open_in_root(root->get(), path, O_PATH));
      return reopen_regular(found, path, limit);
    };
    for (const char* path : {"/a/file", "a/file", "/link", "/../../a/file", "//a/./file", "directory/file",
                             "a/up/up/file", "a/../a/../../a/file", "a/absolute"}) {
      EXPECT_TRUE(open_inside(path, 100).has_value()) << path;
    }
    for (const char* path : {"/stray", "/../outside", "/magic/etc/passwd", "", "a/nothing"}) {
      EXPECT_EQ(open_inside(path, 100).error().code(), ErrorCode::kNotFound) << path;
    }
    EXPECT_EQ(open_inside("/a/file", 5).error().code(), ErrorCode::kTooLarge);
    EXPECT_EQ(open_inside("/a", 100).error().code(), ErrorCode::kInvalid);
    const auto error_of = [](int at, const std::string& path, int flags) {
      return open_in_root(at, path, flags) ? 0 : errno;
    };
    EXPECT_EQ(error_of(root->get(), "loop", O_PATH), ELOOP);
    EXPECT_EQ(error_of(root->get(), "link", O_RDONLY | O_NOFOLLOW), ELOOP);
    EXPECT_EQ(error_of(root->get(), "link", O_PATH | O_NOFOLLOW), 0);
    EXPECT_EQ(error_of(root->get(), "a/file/", O_PATH), ENOTDIR);
    EXPECT_EQ(error_of(root->get(), "a/file/x", O_PATH), ENOTDIR);
    EXPECT_EQ(error_of(root->get(), "a/file", O_PATH | O_DIRECTORY), ENOTDIR);
    for (const char* path : {"a/file/..", "a/file/../file", "a/file/.", "link/../file"}) {
      EXPECT_EQ(error_of(root->get(), path, O_PATH), ENOTDIR) << path;
    }
    for (const char* path : {"/", ".", "..", "a/", "a/.", "directory", "directory/.."}) {
      EXPECT_EQ(error_of(root->get(), path, O_RDONLY | O_DIRECTORY), 0) << path;
    }
    for (const char* path : {"proc/self/root", "proc/self/cwd/x", "proc/self/exe"}) {
      EXPECT_EQ(error_of(top->get(), path, O_PATH), ELOOP) << path;
    }
    for (const char* path : {"proc/self/stat", "proc/mounts"}) EXPECT_EQ(error_of(top->get(), path, O_PATH), 0) << path;
  });
}

/// The kernel gives up on a path with ".." when anything on this host is mounted or renamed at that moment
/// (openat2(2), EAGAIN).
TEST_P(FileOfAnotherRoot, IsFoundWhateverElseIsRenamed) {
  INDUCTORFS_NEEDS_OPENAT2();
  const TemporaryDirectory temporary;
  std::filesystem::create_directories(temporary / "root/bin");
  std::filesystem::create_directories(temporary / "other");
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, temporary / "root/file", "12345"));
  std::string path;
  for (int i = 0; i < 50; ++i) path += "bin/../";  // a walk takes as long as a rename
  path += "file";
  const auto root = open_at(AT_FDCWD, temporary / "root", O_PATH | O_DIRECTORY);
  ASSERT_TRUE(root);
  std::jthread renames([&](const std::stop_token& stop) {
    const std::string one = temporary / "other/one";
    const std::string two = temporary / "other/two";
    (void)::mkdir(one.c_str(), 0700);
    while (!stop.stop_requested()) {
      (void)::rename(one.c_str(), two.c_str());
      (void)::rename(two.c_str(), one.c_str());
    }
  });
  look([&] {
    const int times = GetParam() ? 20'000 : 1'000;  // each of the latter opens a hundred names
    for (int i = 0; i < times; ++i) {
      const auto found = open_in_root(root->get(), path, O_PATH);
      ASSERT_TRUE(found) << i << ": " << to_string(found.error().code());
    }
  });
}

}  // namespace
}  // namespace inductorfs
