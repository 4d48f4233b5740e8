// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "fake_packages.h"
#include "fingerprint/common/key_memory.h"
#include "fingerprint/packages/package_keys.h"
#include "inductorfs/base/fd.h"
#include "support/emulator.h"
#include "support/temporary_directory.h"

namespace inductorfs::fingerprint {
namespace {

using inductorfs::testing::TemporaryDirectory;
using testing::Files;
using testing::write_text;
using testing::write_tree;
namespace fs = std::filesystem;

constexpr const char* kLibrary = "lib/libtorch_cpu.so";

/// A torch without RECORD, in a directory that stands for the root of a container.
class FilesDigest : public ::testing::Test {
 protected:
  void SetUp() override {
    INDUCTORFS_NEEDS_OPENAT2();
    write_tree(torch_, testing::torch_tree());
    write_text(torch_ + "/" + kLibrary, "TORCH");
  }
  static Result<std::string> digest_of(const std::string& root, const std::string& path, KeyMemory& memory) {
    const auto opened = InRoot::open(root);
    return opened ? files_digest(*opened, torch_in(path), memory) : fail(opened.error());
  }
  [[nodiscard]] std::string digest() const {
    KeyMemory nothing("");
    const auto digest = digest_of(root_, "/opt/torch", nothing);
    return digest ? *digest : digest.error().to_string();
  }
  [[nodiscard]] std::optional<ErrorCode> error() const {
    KeyMemory nothing("");
    const auto digest = digest_of(root_, "/opt/torch", nothing);
    return digest ? std::nullopt : std::optional<ErrorCode>(digest.error().code());
  }

  TemporaryDirectory temporary_;
  std::string root_ = temporary_ / "root";
  std::string torch_ = root_ + "/opt/torch";
};

/// The lines are those that pip wrote for a wheel of these files: digests by Python's hashlib and base64.
TEST_F(FilesDigest, IsThatOfTheRecordOfAWheelWithTheseFiles) {
  fs::remove_all(torch_);
  write_tree(torch_, {{kLibrary, "TORCH"}, {"a.py", ""}, {"with,comma.h", "H"}, {"say\"so\".h", "HH"}});
  write_text(root_ + "/opt/torch-9.9.9.dist-info/RECORD",
             "torch/lib/libtorch_cpu.so,sha256=Rxy_VVDe4vsVbeS8bWgn-JFXzSklAUZDKXmpzUwQYCs,5\n"
             "torch/a.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\n"
             "\"torch/with,comma.h\",sha256=RL165g9Hj64QYeEadzn0uU0dr5F5gtM7b8igGmP4nCE,1\n"
             "\"torch/say\"\"so\"\".h\",sha256=pBeqSXXFWpuXXM2GmmREWT_ub_8oaL96WBFQn2a3Ik0,2\n"
             "torch/__pycache__/a.cpython-311.pyc,,\n"
             "torch-9.9.9.dist-info/RECORD,,\n");
  KeyMemory nothing("");
  EXPECT_EQ(digest(), record_digest(InRoot::host(), torch_in(torch_), nothing).value_or("?"));
}

TEST_F(FilesDigest, IsTheSameInTwoPlacesAndAnotherForAnyFile) {
  const std::string before = digest();
  EXPECT_EQ(before.size(), 64U) << before;
  fs::create_directories(temporary_ / "other/usr/lib");
  fs::copy(torch_, temporary_ / "other/usr/lib/torch", fs::copy_options::recursive);
  KeyMemory nothing("");
  EXPECT_EQ(digest_of(temporary_ / "other", "/usr/lib/torch", nothing).value_or("?"), before);
  for (const auto& [name, text] :
       Files{{"b/c.py", "BD"}, {kLibrary, "TORCJ"}, {"b/d.txt", "tyt"}, {"include/new.h", ""}}) {
    const std::string file = torch_ + "/" + name;
    const std::string old = fs::exists(file) ? testing::read_text(file) : std::string();
    write_text(file, text);
    EXPECT_NE(digest(), before) << name;
    if (old.empty()) {
      fs::remove(file);
    } else {
      write_text(file, old);
    }
    EXPECT_EQ(digest(), before) << name;
  }
  fs::rename(torch_ + "/b1.py", torch_ + "/b2.py");
  EXPECT_NE(digest(), before) << "names count";
}

TEST_F(FilesDigest, IsBlindToWhatIsWrittenAtRunTime) {
  const std::string before = digest();
  write_tree(torch_, {{"__pycache__/a.cpython-311.pyc", "x"},
                      {"b/__pycache__/c.cpython-311.opt-1.pyc", "x"},
                      {"b/old.pyc", "x"},
                      {"b/.c.py.swp", "x"},
                      {".nfs00000001", "x"},
                      {".mypy_cache/x.json", "x"}});
  EXPECT_EQ(digest(), before);
}

/// As Debian's python3-torch and libtorch: links to libraries and to directories of headers.
TEST_F(FilesDigest, FollowsLinksInTheRootOfItsUsers) {
  write_text(torch_ + "/include/ATen/core/x.h", "X");
  const std::string before = digest();
  fs::create_directories(root_ + "/usr/lib");
  fs::create_directories(root_ + "/usr/include");
  fs::rename(torch_ + "/" + kLibrary, root_ + "/usr/lib/libtorch_cpu.so.9");
  fs::create_symlink("/usr/lib/libtorch_cpu.so.9", torch_ + "/" + kLibrary);
  fs::rename(torch_ + "/include/ATen", root_ + "/usr/include/ATen");
  fs::create_directory_symlink("../../../usr/include/ATen", torch_ + "/include/ATen");
  EXPECT_EQ(digest(), before);
  fs::remove(torch_ + "/include/ATen");
  fs::create_directory_symlink("../../../../../../../usr/include/ATen", torch_ + "/include/ATen");
  EXPECT_EQ(digest(), before) << "nothing is above the root";
  write_text(root_ + "/usr/include/ATen/core/x.h", "Y");
  EXPECT_NE(digest(), before);
  write_text(root_ + "/usr/include/ATen/core/x.h", "X");
  write_text(root_ + "/usr/lib/libtorch_cpu.so.9", "OTHER");
  EXPECT_NE(digest(), before);
}

TEST_F(FilesDigest, CountsALinkThatLeadsNowhere) {
  const std::string before = digest();
  fs::create_directory_symlink("/usr/include/torch", torch_ + "/include");
  const std::string broken = digest();
  EXPECT_EQ(broken.size(), 64U) << broken;
  EXPECT_NE(broken, before);
  write_text(root_ + "/usr/include/torch/x.h", "X");
  EXPECT_NE(digest(), broken);
}

TEST_F(FilesDigest, RefusesWhatIsNoTorchOrHasNoEnd) {
  fs::rename(torch_ + "/" + kLibrary, torch_ + "/lib/libtorch.so");
  EXPECT_EQ(error(), ErrorCode::kNotFound) << "its libraries are elsewhere, and nothing tells which they are";
  fs::create_symlink("/usr/lib/libtorch_cpu.so", torch_ + "/" + kLibrary);
  EXPECT_EQ(error(), ErrorCode::kNotFound) << "the same";
  fs::remove(torch_ + "/" + kLibrary);
  write_text(torch_ + "/" + kLibrary, "TORCH");
  ASSERT_EQ(mkfifo((torch_ + "/b/pipe").c_str(), 0600), 0);
  EXPECT_EQ(digest().size(), 64U) << "nobody waits for the other end";
  write_text(torch_ + "/b/line\nbreak", "x");
  EXPECT_EQ(error(), ErrorCode::kInvalid);
  fs::remove(torch_ + "/b/line\nbreak");
  fs::create_directory_symlink(".", torch_ + "/b/loop");
  EXPECT_EQ(error(), ErrorCode::kTooLarge);
  fs::remove(torch_ + "/b/loop");
  write_text(torch_ + "/b/sparse", "");
  ASSERT_EQ(truncate((torch_ + "/b/sparse").c_str(), off_t{1} << 43), 0);
  EXPECT_EQ(error(), ErrorCode::kTooLarge);
  fs::remove_all(torch_);
  EXPECT_EQ(error(), ErrorCode::kNotFound);
}

/// A reader that was killed at its deadline has saved what it knew of the large files.
TEST_F(FilesDigest, ReadsNoLargeFileASecondTime) {
  const std::string library = torch_ + "/" + kLibrary;
  ASSERT_EQ(truncate(library.c_str(), off_t{17} << 20), 0);
  const std::string before = digest();
  KeyMemory memory("");
  struct stat status {};
  ASSERT_EQ(stat(library.c_str(), &status), 0);
  memory.keep(std::string("sha256 /opt/torch/") + kLibrary, identity_of(status), codec::digest_of("planted").to_hex());
  EXPECT_NE(digest_of(root_, "/opt/torch", memory).value_or(before), before);
}

/// Links to files of this host that nobody has changed lately, since what has just been written is not remembered.
TEST_F(FilesDigest, IsRememberedUntilAFileChanges) {
  fs::remove_all(torch_);
  fs::create_directories(torch_ + "/lib");
  fs::create_symlink("/bin/sh", torch_ + "/" + kLibrary);
  fs::create_symlink("/bin/true", torch_ + "/version.py");
  const std::string file = temporary_ / "memory.json";
  const auto read = [&] {
    KeyMemory memory(file);
    const auto digest = files_digest(InRoot::host(), torch_in(torch_), memory);
    EXPECT_TRUE(memory.save());
    return digest.value_or("?");
  };
  const std::string digest = read();
  std::string kept = testing::read_text(file);
  ASSERT_NE(kept.find("files " + torch_), std::string::npos) << kept;
  const size_t at = kept.find(digest);
  ASSERT_NE(at, std::string::npos) << kept;
  write_text(file, kept.replace(at, digest.size(), "planted"));
  EXPECT_EQ(read(), "planted");
  fs::remove(torch_ + "/version.py");
  fs::create_symlink("/bin/cat", torch_ + "/version.py");
  EXPECT_NE(read(), "planted");
}

}  // namespace
}  // namespace inductorfs::fingerprint
