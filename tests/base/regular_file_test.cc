// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/regular_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

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

}  // namespace
}  // namespace inductorfs
