// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/read_bounds.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <string>

#include "inductorfs/base/fd.h"
#include "support/lacks.h"
#include "support/temporary_directory.h"

namespace inductorfs {
namespace {

namespace fs = std::filesystem;

constexpr int kUnbound = 253;
constexpr int kLacks = 254;

/// Returns what `act` returned in a child that reads below this directory alone.
int in_bounds(const std::string& directory, const std::function<int()>& act) {
  const Fd root(::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  const pid_t pid = ::fork();
  if (pid == 0) {
    const auto done = bound_reading(root.get());
    if (!done) ::_exit(done.error().code() == ErrorCode::kNotSupported ? kLacks : kUnbound);
    ::_exit(act());
  }
  int status = 0;
  if (pid < 0 || ::waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return kUnbound;
  return WEXITSTATUS(status);
}

/// 0 when it can be opened.
int error_of(int at, const std::string& path, int flags) {
  return Fd(::openat(at, path.c_str(), flags | O_CLOEXEC, 0600)) ? 0 : errno;
}

class ReadBounds : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(inside_ + "/below");
    for (const std::string& file : {inside_ + "/below/file", std::string(temporary_ / "outside")}) {
      ASSERT_TRUE(write_file_atomically(AT_FDCWD, file, "text", 0600));
    }
    if (in_bounds(inside_, [] { return 0; }) == kLacks) INDUCTORFS_LACKS("a kernel with Landlock");
  }
  const testing::TemporaryDirectory temporary_;
  const std::string inside_ = temporary_ / "inside";
};

TEST_F(ReadBounds, HoldWhereverAPathLeads) {
  const Fd around(::open(temporary_.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  fs::create_symlink("../../outside", inside_ + "/below/link");
  const auto opened = [&](int at, const std::string& path, int flags = O_RDONLY) {
    return in_bounds(inside_, [&] { return error_of(at, path, flags); });
  };
  EXPECT_EQ(opened(AT_FDCWD, inside_ + "/below/file"), 0);
  EXPECT_EQ(opened(AT_FDCWD, inside_, O_RDONLY | O_DIRECTORY), 0);
  EXPECT_EQ(opened(AT_FDCWD, temporary_ / "outside"), EACCES);
  EXPECT_EQ(opened(AT_FDCWD, "/etc/passwd"), EACCES);
  EXPECT_EQ(opened(AT_FDCWD, "/", O_RDONLY | O_DIRECTORY), EACCES);
  EXPECT_EQ(opened(AT_FDCWD, inside_ + "/below/link"), EACCES);
  EXPECT_EQ(opened(around.get(), "outside"), EACCES) << "by a directory that is open";
}

TEST_F(ReadBounds, LetNothingBeWritten) {
  const auto opened = [&](const std::string& path, int flags) {
    return in_bounds(inside_, [&] { return error_of(AT_FDCWD, path, flags); });
  };
  EXPECT_EQ(opened(inside_ + "/below/file", O_WRONLY), EACCES);
  EXPECT_EQ(opened(inside_ + "/below/fresh", O_RDWR | O_CREAT), EACCES);
  EXPECT_EQ(in_bounds(inside_, [&] { return ::mkdir((inside_ + "/made").c_str(), 0700) == 0 ? 0 : errno; }), EACCES);
  EXPECT_EQ(in_bounds(inside_, [&] { return ::unlink((inside_ + "/below/file").c_str()) == 0 ? 0 : errno; }), EACCES);
}

}  // namespace
}  // namespace inductorfs
