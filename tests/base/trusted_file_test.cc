// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/trusted_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "inductorfs/base/fd.h"
#include "support/temporary_directory.h"

namespace inductorfs {
namespace {

namespace fs = std::filesystem;

class TrustedFile : public ::testing::Test {
 protected:
  TrustedFile() {
    fs::create_directory(directory_);
    set_mode(directory_, 0755);
    std::ofstream(file_) << "text";
    set_mode(file_, 0644);
  }
  static void set_mode(const std::string& path, mode_t mode) { ASSERT_EQ(::chmod(path.c_str(), mode), 0); }
  std::string why(const std::string& path) {
    const Result<void> checked = check_trusted_file(path);
    const Result<std::string> text = read_trusted_file(path, 100);
    EXPECT_EQ(checked.has_value(), text.has_value());
    EXPECT_EQ(text.value_or("text"), "text");
    if (checked) return {};
    EXPECT_EQ(checked.error().code(), ErrorCode::kNotPermitted);
    return checked.error().what();
  }

  testing::TemporaryDirectory root_;
  const std::string directory_ = root_.path() + "/etc";
  const std::string file_ = directory_ + "/file";
};

TEST_F(TrustedFile, IsOneThatNobodyElseMayWrite) {
  for (const mode_t mode : {0400, 0600, 0640, 0644, 0755}) {
    set_mode(file_, mode);
    EXPECT_EQ(why(file_), "") << mode;
  }
  for (const mode_t mode : {0602, 0646, 0666}) {
    set_mode(file_, mode);
    EXPECT_NE(why(file_).find("run chmod go-w " + file_), std::string::npos) << mode;
  }
}

TEST_F(TrustedFile, LiesWhereNobodyElseMayReplaceIt) {
  set_mode(directory_, 0757);
  EXPECT_NE(why(file_).find("may replace " + file_ + ", because of " + directory_), std::string::npos) << why(file_);
  EXPECT_NE(why(directory_ + "/../etc//./file").find("may replace"), std::string::npos);
  set_mode(directory_, 01777);
  EXPECT_EQ(why(file_), "");
}

TEST_F(TrustedFile, IsJudgedWhereALinkLeads) {
  const std::string open = root_.path() + "/open";
  fs::create_directory(open);
  fs::create_symlink("../etc/file", open + "/relative");
  fs::create_symlink(file_, directory_ + "/absolute");
  EXPECT_EQ(why(open + "/relative"), "");
  EXPECT_EQ(why(directory_ + "/absolute"), "");
  set_mode(open, 0777);
  EXPECT_NE(why(open + "/relative").find("may replace"), std::string::npos);
  set_mode(open, 0755);
  set_mode(file_, 0666);
  EXPECT_NE(why(open + "/relative").find("may write to"), std::string::npos);
}

TEST_F(TrustedFile, MayBeAnOpenOne) {
  const auto path_of = [](const Fd& file) { return "/proc/self/fd/" + std::to_string(file.get()); };
  const Fd nameless(::memfd_create("text", MFD_CLOEXEC));
  ASSERT_TRUE(nameless && write_full(nameless.get(), "text"));
  EXPECT_EQ(why(path_of(nameless)), "");
  const Fd named(::open(file_.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(why(path_of(named)), "");
  set_mode(file_, 0666);
  EXPECT_NE(why(path_of(named)).find("run chmod go-w"), std::string::npos);
}

TEST_F(TrustedFile, IsNoDeviceWhoseModeSomebodyWouldChange) {
  const Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(null);
  for (const std::string& path : {std::string("/dev/null"), "/proc/self/fd/" + std::to_string(null.get())}) {
    for (const Error& error : {check_trusted_file(path).error(), read_trusted_file(path, 100).error()}) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalid);
      EXPECT_EQ(error.what(), path + " is not a regular file; name a regular file");
    }
  }
}

TEST_F(TrustedFile, TellsWhatIsNotThere) {
  EXPECT_EQ(check_trusted_file(directory_ + "/none").error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(check_trusted_file(file_ + "/below").error().code(), ErrorCode::kNotDirectory);
  EXPECT_EQ(check_trusted_file("/" + std::string(1 << 20, 'a')).error().code(), ErrorCode::kNameTooLong);
  EXPECT_EQ(read_trusted_file(file_, 3).error().code(), ErrorCode::kTooLarge);
  fs::create_symlink("loop", directory_ + "/loop");
  EXPECT_FALSE(check_trusted_file(directory_ + "/loop"));
}

}  // namespace
}  // namespace inductorfs
