// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <fstream>
#include <stdexcept>

#include "inductorfs/layout/layout.h"
#include "inductorfs/vfs/view_check.h"
#include "support/directory_image.h"
#include "support/temporary_directory.h"
#include "vfs/disk/inode_marks.h"
#include "vfs/disk/local_tree.h"

namespace inductorfs::testing {
namespace {

using codec::digest_of;
using store::Finding;
using store::Findings;
using vfs::CheckedView;
using vfs::LocalTree;

const std::string kKey(52, 'A');  // of triton/0/<key>

std::string group_text(const std::string& directory, const std::string& child, const std::string& key = kKey) {
  return R"({"child_paths": {")" + child + R"(": ")" + directory + "/" + key + "/" + child + R"("}})";
}

/// The local files of a mount: private ones, a sealed copy, a sealed link of a blob, a sealed group file.
class ViewCheck : public ::testing::Test {
 protected:
  void SetUp() override {
    write("view/own", "private");
    write("view/d/e/also own", "private too");
    write("view/d/copy.cpp", "sealed bytes");
    seal("view/d/copy.cpp", digest_of("sealed bytes").to_hex());
    write("blob", "of a blob");
    link("blob", "view/d/linked.cpp");
    seal("view/d/linked.cpp", digest_of("of a blob").to_hex());
    const std::string group = group_text("/somewhere/triton/0", "k.cubin");
    write("view/triton/0/" + kKey + "/__grp__k.json", group);
    seal("view/triton/0/" + kKey + "/__grp__k.json", digest_of(layout::canonical_group(group, kKey).value()).to_hex());
    store_.blobs.emplace(digest_of("of a blob"), 9);
    store_.inodes.emplace(inode_of("blob"), digest_of("of a blob"));
  }
  [[nodiscard]] std::string place(const std::string& path) const { return directory_ / "files/" + path; }
  void write(const std::string& path, const std::string& bytes) const {
    std::filesystem::create_directories(std::filesystem::path(place(path)).parent_path());
    std::ofstream(place(path), std::ios::binary | std::ios::trunc) << bytes;
  }
  void link(const std::string& from, const std::string& to) const {
    ASSERT_EQ(::link(place(from).c_str(), place(to).c_str()), 0);
  }
  void seal(const std::string& path, const std::string& text) const {
    ASSERT_EQ(::setxattr(place(path).c_str(), vfs::kSealMark, text.data(), text.size(), 0), 0);
  }
  [[nodiscard]] ino_t inode_of(const std::string& path) const {
    struct stat info {};
    return ::stat(place(path).c_str(), &info) == 0 ? info.st_ino : 0;
  }
  CheckedView checked(bool repair, Findings& findings) const {
    auto view = vfs::check(directory_.path(), "files", store_, repair, findings);
    if (!view) throw std::runtime_error(view.error().to_string());
    return *view;
  }
  /// What a look alone finds, which has to be one thing; that it changes nothing is checked.
  [[nodiscard]] Finding found() const {
    const auto before = image_of(directory_.path());
    Findings findings;
    (void)checked(false, findings);  // what it counts is for others
    EXPECT_EQ(image_of(directory_.path()), before) << "a look changes nothing";
    if (findings.all().size() != 1) throw std::runtime_error(std::to_string(findings.all().size()) + " findings");
    EXPECT_EQ(findings.all().front().repair, "");
    return findings.all().front();
  }
  /// This is found, and with a repair it and nothing else is removed.
  void expect_removed(const std::string& path) const {
    const Finding finding = found();
    EXPECT_EQ(finding.path, "files/" + path);
    EXPECT_EQ(finding.what, "its bytes are not those that its seal names");
    EXPECT_FALSE(finding.harmless);
    auto expected = image_of(directory_.path());
    EXPECT_EQ(expected.erase("files/" + path), 1U);
    Findings findings;
    (void)checked(true, findings);  // its counts are those of the look
    ASSERT_EQ(findings.all().size(), 1U);
    EXPECT_EQ(findings.all().front().repair, "removed");
    EXPECT_TRUE(findings.sound());
    EXPECT_EQ(image_of(directory_.path()), expected);
    Findings none;
    (void)checked(true, none);  // its counts are those of the look
    EXPECT_TRUE(none.all().empty());
  }

  TemporaryDirectory directory_;
  LocalTree tree_ = LocalTree::open(directory_ / "files", ::getuid(), ::getgid(), 0755).value();
  store::CheckedStore store_;
};

TEST_F(ViewCheck, LeavesSoundFilesAsTheyAre) {
  const auto before = image_of(directory_.path());
  for (const bool repair : {false, true}) {
    Findings findings;
    const CheckedView view = checked(repair, findings);
    EXPECT_EQ(view.files, 5U);
    EXPECT_EQ(view.sealed, 3U);
    EXPECT_TRUE(findings.all().empty()) << findings.all().front().path;
  }
  EXPECT_EQ(image_of(directory_.path()), before);
}

TEST_F(ViewCheck, NoneAtAllAreSoundAndAreNotMade) {
  const TemporaryDirectory empty;
  Findings findings;
  const auto view = vfs::check(empty.path(), "files", store_, true, findings);
  ASSERT_TRUE(view);
  EXPECT_EQ(view->files + view->sealed, 0U);
  EXPECT_TRUE(image_of(empty.path()).empty());
}

TEST_F(ViewCheck, ASealedFileWithOtherBytesGoes) {
  write("view/d/copy.cpp", "Sealed bytes");  // in place: the seal stays
  expect_removed("view/d/copy.cpp");
}

TEST_F(ViewCheck, ASealedFileThatWasCutGoes) {
  std::filesystem::resize_file(place("view/d/copy.cpp"), 3);
  expect_removed("view/d/copy.cpp");
}

TEST_F(ViewCheck, ASealThatIsNoDigestIsNotBelieved) {
  seal("view/d/copy.cpp", "nonsense");
  expect_removed("view/d/copy.cpp");
}

TEST_F(ViewCheck, ALinkOfAnotherBlobGoes) {
  seal("view/d/linked.cpp", digest_of("another blob").to_hex());
  expect_removed("view/d/linked.cpp");
}

TEST_F(ViewCheck, ALinkOfADamagedBlobGoes) {
  store_.blobs.clear();
  store_.inodes.clear();  // as store::check leaves them when the blob's bytes are not its digest's
  write("blob", "Of a blob");
  const std::string group = "files/view/d/linked.cpp";
  EXPECT_EQ(found().path, group);
  Findings findings;
  (void)checked(true, findings);  // its counts are those of the look
  EXPECT_TRUE(findings.sound());
  EXPECT_FALSE(std::filesystem::exists(place("view/d/linked.cpp")));
  EXPECT_TRUE(std::filesystem::exists(place("blob"))) << "the store's to remove";
}

TEST_F(ViewCheck, ALinkWhoseBlobWentButWhoseBytesAreRightStays) {
  store_.blobs.clear();
  store_.inodes.clear();
  const auto before = image_of(directory_.path());
  Findings findings;
  EXPECT_EQ(checked(true, findings).sealed, 3U);
  EXPECT_TRUE(findings.all().empty());
  EXPECT_EQ(image_of(directory_.path()), before);
}

TEST_F(ViewCheck, AGroupFileIsHeldAgainstWhatTheClusterHasOfIt) {
  const std::string path = "view/triton/0/" + kKey + "/__grp__k.json";
  // Another mount path: the same group for the cluster.
  const std::string moved = group_text("/elsewhere/triton/0", "k.cubin");
  write(path, moved);
  Findings findings;
  (void)checked(true, findings);  // only whether anything is found
  EXPECT_TRUE(findings.all().empty());
  write(path, group_text("/elsewhere/triton/0", "other.cubin"));
  expect_removed(path);
}

TEST_F(ViewCheck, LeavesSoundGroupFilesOfEveryKey) {
  for (const auto& key : {std::string(43, 'A'), std::string(64, 'a')}) {
    const std::string path = "view/triton/0/" + key + "/__grp__k.json";
    const std::string group = group_text("/somewhere/triton/0", "k.cubin", key);
    const std::string digest = digest_of(layout::canonical_group(group, key).value()).to_hex();
    write(path, group);
    seal(path, digest);
    write("view/saved/" + key + "/set/__grp__k.json", group);  // moved there
    seal("view/saved/" + key + "/set/__grp__k.json", digest);
  }
  const auto before = image_of(directory_.path());
  Findings findings;
  EXPECT_EQ(checked(true, findings).sealed, 7U);
  EXPECT_TRUE(findings.all().empty());
  EXPECT_EQ(image_of(directory_.path()), before);
}

TEST_F(ViewCheck, AGroupFileThatIsNoneGoes) {
  const std::string path = "view/triton/0/" + kKey + "/__grp__k.json";
  write(path, "{");
  expect_removed(path);
}

TEST_F(ViewCheck, ABlobWithoutASealIsSaidAndLeftToTheNextMount) {
  ASSERT_EQ(::removexattr(place("view/d/linked.cpp").c_str(), vfs::kSealMark), 0);
  const Finding finding = found();
  EXPECT_EQ(finding.path, "files/view/d/linked.cpp");
  EXPECT_TRUE(finding.harmless);
  const auto before = image_of(directory_.path());
  Findings findings;
  (void)checked(true, findings);  // its counts are those of the look
  EXPECT_EQ(findings.harmless(), 1U);
  EXPECT_EQ(findings.all().front().repair, "");
  EXPECT_EQ(image_of(directory_.path()), before);
}

TEST_F(ViewCheck, WhatHasNoNameAnyMoreIsHarmlessAndStays) {
  write("pending/5", "half a set");
  write("orphans/7", "deleted");
  const auto before = image_of(directory_.path());
  Findings findings;
  (void)checked(true, findings);  // only what is found
  ASSERT_EQ(findings.all().size(), 2U);
  EXPECT_EQ(findings.all()[0].path, "files/pending/5");
  EXPECT_EQ(findings.all()[1].path, "files/orphans/7");
  EXPECT_EQ(findings.harmless(), 2U);
  EXPECT_TRUE(findings.sound());
  EXPECT_EQ(image_of(directory_.path()), before);
}

TEST_F(ViewCheck, FollowsNothingOutOfTheView) {
  write("outside", "other bytes");
  seal("outside", digest_of("what it was").to_hex());
  ASSERT_EQ(::symlink(place("outside").c_str(), place("view/link").c_str()), 0);
  ASSERT_EQ(::symlink(directory_.path().c_str(), place("view/directory").c_str()), 0);
  ASSERT_EQ(::mkfifo(place("view/fifo").c_str(), 0600), 0);
  const auto before = image_of(directory_.path());
  Findings findings;
  EXPECT_EQ(checked(true, findings).files, 5U);
  EXPECT_TRUE(findings.all().empty());
  EXPECT_EQ(image_of(directory_.path()), before);
}

}  // namespace
}  // namespace inductorfs::testing
