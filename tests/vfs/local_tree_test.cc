// SPDX-License-Identifier: Apache-2.0
#include "vfs/disk/local_tree.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "inductorfs/base/fail_point.h"
#include "support/temporary_directory.h"
#include "vfs/disk/early_copy.h"
#include "vfs/disk/inode_marks.h"
#include "vfs/failing_attributes.h"

namespace {

thread_local bool lists_no_types = false;

}  // namespace

// In place of the C library's, for every part of this program.
extern "C" struct dirent* readdir(DIR* directory) {
  static const auto real = reinterpret_cast<struct dirent* (*)(DIR*)>(::dlsym(RTLD_NEXT, "readdir64"));
  struct dirent* const entry = real(directory);
  if (entry != nullptr && lists_no_types) entry->d_type = DT_UNKNOWN;
  return entry;
}

namespace inductorfs::testing {
namespace {

using Tree = vfs::LocalTree;

class LocalTree : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& bytes) {
    ASSERT_TRUE(write_file_atomically(root.get(), path, bytes));
  }
  Result<void> unshare(const std::string& path, std::optional<uint64_t> size = {}) {
    vfs::EarlyCopy none(size);
    return none.unshare(tree, path);
  }
  std::string text(const std::string& path) { return read_file(root.get(), path, 1 << 20).value_or("absent"); }

  TemporaryDirectory directory;
  Tree tree = Tree::open(directory / "local", ::getuid(), ::getgid(), 0750).value();
  Fd root = open_at(AT_FDCWD, directory / "local", O_RDONLY | O_DIRECTORY).value();
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
  ASSERT_EQ(::symlinkat("/etc/passwd", root.get(), "view/link"), 0);
  EXPECT_FALSE(tree.open_file("view/link", false));
  EXPECT_FALSE(tree.read_file("view/link", 1 << 20));
  EXPECT_TRUE(S_ISLNK(tree.stat("view/link").value()->st_mode));
  ASSERT_EQ(::symlinkat("/etc", root.get(), "view/directory"), 0);
  EXPECT_FALSE(tree.list("view/directory"));
}

TEST_F(LocalTree, OpensNoFifo) {
  // open(2) would wait until somebody opens the other end, and nobody does.
  ASSERT_EQ(::mkfifoat(root.get(), "view/fifo", 0644), 0);
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
  ASSERT_TRUE(tree.set_mode("view/a", 0700));
  ASSERT_TRUE(tree.make_view_directories("a/b/d", access));
  EXPECT_EQ(tree.stat("view/a").value()->st_mode & 07777, 0700U);
  EXPECT_TRUE(tree.make_view_directories("", access));
}

TEST_F(LocalTree, UnsharesAnInodeWithAllThatBelongsToIt) {
  write("view/file", "0123456789");
  ASSERT_EQ(::linkat(root.get(), "view/file", root.get(), "blob", 0), 0);
  ASSERT_EQ(::fchmodat(root.get(), "view/file", 0640, 0), 0);
  const struct timespec times[2] = {{1'000'000'000, 5}, {1'100'000'000, 7}};
  ASSERT_EQ(::utimensat(root.get(), "view/file", times, 0), 0);
  auto file = tree.open_file("view/file", true);
  ASSERT_TRUE(file);
  ASSERT_TRUE(vfs::set_seal(file->get(), "abc"));
  ASSERT_EQ(::fsetxattr(file->get(), "user.mine", "1", 1, 0), 0);

  ASSERT_TRUE(unshare("view/file"));

  const auto status = *tree.stat("view/file").value();
  EXPECT_NE(status.st_ino, tree.stat("blob").value()->st_ino);
  EXPECT_EQ(status.st_mode & 07777, 0640U);
  EXPECT_EQ(status.st_mtim.tv_sec, 1'100'000'000);
  EXPECT_EQ(status.st_mtim.tv_nsec, 7);
  EXPECT_EQ(text("view/file"), "0123456789");
  auto copy = tree.open_file("view/file", false);
  EXPECT_FALSE(vfs::seal_of(copy->get()).value()) << "the copy is nobody's blob";
  EXPECT_EQ(::fgetxattr(copy->get(), "user.mine", nullptr, 0), 1);
  EXPECT_EQ(vfs::seal_of(file->get()).value().value_or("none"), "abc");
  EXPECT_TRUE(tree.is_empty("orphans"));
}

TEST_F(LocalTree, KnowsWhatLiesOnADiskThatListsNoTypes) {
  write("view/file", "x");
  ASSERT_TRUE(tree.make_directory("view/directory"));
  ASSERT_TRUE(tree.make_symlink("file", "view/link"));
  lists_no_types = true;
  const auto items = tree.list("view");
  lists_no_types = false;
  ASSERT_TRUE(items);
  std::map<std::string, mode_t> types;
  for (const auto& item : *items) types[item.name] = item.type;
  EXPECT_EQ(types, (std::map<std::string, mode_t>{{"file", S_IFREG}, {"directory", S_IFDIR}, {"link", S_IFLNK}}));
}

TEST_F(LocalTree, TellsOfEachFileWhatJobsMadeIt) {
  struct stat on_disk {};
  ASSERT_TRUE(tree.create_file("view/file"));
  ASSERT_TRUE(tree.give_to("view/file", {1000, 100, S_IFREG | 04751}));
  ASSERT_TRUE(tree.make_directory("view/directory"));
  ASSERT_TRUE(tree.give_to("view/directory", {1001, 101, S_IFDIR | 03777}));
  ASSERT_TRUE(tree.make_special("view/link", {1002, 102, S_IFLNK | 0777}, "/etc/passwd"));
  ASSERT_TRUE(tree.make_special("view/pipe", {1003, 103, S_IFIFO | 0600}, {}));

  const std::map<std::string, std::array<unsigned, 3>> told = {{"view/file", {1000, 100, S_IFREG | 04751}},
                                                               {"view/directory", {1001, 101, S_IFDIR | 03777}},
                                                               {"view/link", {1002, 102, S_IFLNK | 0777}},
                                                               {"view/pipe", {1003, 103, S_IFIFO | 0600}}};
  for (const auto& [path, expected] : told) {
    const auto status = *tree.stat(path).value();
    EXPECT_EQ((std::array<unsigned, 3>{status.st_uid, status.st_gid, status.st_mode}), expected) << path;
    ASSERT_EQ(::lstat((directory / ("local/" + path)).c_str(), &on_disk), 0);
    EXPECT_EQ(on_disk.st_uid, ::geteuid()) << path;
    EXPECT_EQ(on_disk.st_mode, path == "view/directory" ? S_IFDIR | 0700U : S_IFREG | 0600U) << path;
  }
  EXPECT_EQ(tree.stat("view/link").value()->st_size, 11);
  EXPECT_EQ(tree.read_link("view/link").value_or("none"), "/etc/passwd");
  EXPECT_EQ(tree.read_link("view/file").error().code(), ErrorCode::kInvalid);

  ASSERT_TRUE(tree.set_owner("view/file", 7, std::nullopt));
  EXPECT_EQ(tree.stat("view/file").value()->st_mode, S_IFREG | 0751U) << "as chown(2)";
  EXPECT_EQ(tree.stat("view/file").value()->st_gid, 100U);
}

TEST_F(LocalTree, KnowsASpecialFileWhereverItGoes) {
  ASSERT_TRUE(tree.make_view_directories("a", {}));
  ASSERT_TRUE(tree.make_view_directories("b", {}));
  ASSERT_TRUE(tree.make_view_directories("c", {}));
  ASSERT_TRUE(tree.make_special("view/a/link", {0, 0, S_IFLNK | 0777}, "target"));
  write("view/a/file", "x");
  const auto types = [&](const std::string& path) {
    std::map<std::string, mode_t> found;
    const auto items = tree.list(path);
    for (const auto& item : *items) found[item.name] = item.type;
    return found;
  };
  using Types = std::map<std::string, mode_t>;
  EXPECT_EQ(types("view/a"), (Types{{"file", S_IFREG}, {"link", S_IFLNK}}));
  ASSERT_TRUE(tree.link("view/a/link", "view/b/linked"));
  EXPECT_EQ(types("view/b"), (Types{{"linked", S_IFLNK}}));
  write("view/c/other", "x");
  ASSERT_TRUE(tree.rename("view/c/other", "view/b/linked", RENAME_EXCHANGE));
  EXPECT_EQ(types("view/c"), (Types{{"other", S_IFLNK}}));
  EXPECT_FALSE(tree.open_file("view/c/other", false)) << "its bytes are no file's";
  EXPECT_FALSE(tree.open_directory("view/a/link/below"));
  EXPECT_EQ(tree.stat("view/a/link/below").value_or(std::nullopt).has_value(), false);
}

TEST_F(LocalTree, OpensNoInodeOfTheStoreToBeWrittenTo) {
  for (const mode_t mode : {0644, 0444}) {
    write("view/file", "0123456789");
    const auto file = tree.open_file("view/file", true);
    ASSERT_TRUE(file);
    ASSERT_TRUE(vfs::set_seal(file->get(), {}));
    ASSERT_TRUE(tree.set_mode("view/file", mode));

    EXPECT_EQ(tree.open_file("view/file", true).error().code(), ErrorCode::kBusy);
    EXPECT_TRUE(tree.open_file("view/file", false));
    EXPECT_FALSE(vfs::seal_of(file->get()).value()) << "nothing was queued";
    EXPECT_EQ(tree.stat("view/file").value()->st_mode & 07777, mode);
    vfs::remove_seal(file->get());
    EXPECT_TRUE(tree.open_file("view/file", true));
    ASSERT_TRUE(tree.unlink("view/file"));
  }
}

TEST_F(LocalTree, TakesNoAttributeThatCannotBeReadForAnAbsentOne) {
  write("view/file", "0123456789");
  const auto file = tree.open_file("view/file", true);
  ASSERT_TRUE(file);
  ASSERT_TRUE(vfs::set_seal(file->get(), "abc"));
  ASSERT_EQ(::fsetxattr(file->get(), vfs::kPrivateMark, "1", 1, 0), 0);
  EXPECT_FALSE(vfs::is_changed(file->get()));

  {
    const FailingAttributes failing(vfs::kSealMark);
    EXPECT_EQ(vfs::seal_of(file->get()).error().code(), ErrorCode::kInternal);
    EXPECT_FALSE(vfs::is_stores(file->get()));
    EXPECT_EQ(tree.open_file("view/file", true).error().code(), ErrorCode::kBusy) << "it may be a blob";
  }
  {
    const FailingAttributes failing(vfs::kChangedMark);
    EXPECT_TRUE(vfs::is_changed(file->get()));
  }
  const FailingAttributes failing(vfs::kPrivateMark);
  EXPECT_FALSE(vfs::read_mark(tree, "view/file", vfs::kPrivateMark));
  EXPECT_FALSE(unshare("view/file")) << "the copy would be shared";
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

/// A user exchanges a directory for a link just before a call whose path leads through it. The second way is that of
/// kernels and filters without openat2(2).
class ExchangedDirectory : public LocalTree, public ::testing::WithParamInterface<const char*> {
 protected:
  ExchangedDirectory() {
    std::filesystem::create_directories(outside / "below");
    std::ofstream(outside / "below" / "file") << "theirs";
    std::filesystem::create_directories(view / "own");
    std::ofstream(view / "own" / "file") << "ours";
    std::filesystem::create_directory_symlink(outside, view / "x");
    EXPECT_TRUE(arm_fail_points(GetParam()));
  }
  ~ExchangedDirectory() override { EXPECT_TRUE(arm_fail_points("")); }
  /// All that is outside, with what a call could change.
  [[nodiscard]] std::string state_outside() const {
    std::string text;
    for (const auto& item : std::filesystem::recursive_directory_iterator(outside)) {
      struct stat status {};
      EXPECT_EQ(::lstat(item.path().c_str(), &status), 0);
      std::array<char, 1024> names{};
      const ssize_t size = ::llistxattr(item.path().c_str(), names.data(), names.size());
      text += item.path().string() + " " + std::to_string(status.st_mode) + " " + std::to_string(status.st_uid) + " " +
              std::to_string(status.st_nlink) + " " + std::to_string(status.st_mtim.tv_sec) + " " +
              std::string(names.data(), static_cast<size_t>(std::max(size, ssize_t{0}))) + "\n";
    }
    return text;
  }

  const std::filesystem::path view = std::filesystem::path(directory / "local") / "view";
  const std::filesystem::path outside = std::filesystem::path(directory.path()) / "outside";
};

TEST_P(ExchangedDirectory, HasNothingForWhoeverReads) {
  EXPECT_FALSE(tree.stat("view/x/below/file").value());
  EXPECT_TRUE(tree.list("view/x/below").value().empty());
  EXPECT_FALSE(tree.open_directory("view/x/below"));
  EXPECT_FALSE(tree.open_file("view/x/below/file", false));
  EXPECT_FALSE(tree.open_file("view/x/below/file", true));
  EXPECT_FALSE(tree.read_file("view/x/below/file", 100));
  EXPECT_FALSE(vfs::same_bytes(tree, "view/x/below/file", "view/x/below/file", 100));
  const Fd own = tree.open_directory("view").value();
  EXPECT_TRUE(vfs::list_below(own, "x/below").value().empty());
  ASSERT_EQ(::setxattr((outside / "below" / "file").c_str(), vfs::kScopeMark, "1", 1, 0), 0);
  EXPECT_FALSE(vfs::mark_of(tree, "view/x/below/file", vfs::kScopeMark));
}

TEST_P(ExchangedDirectory, IsNoWayOutForWhoeverWrites) {
  const std::string before = state_outside();
  const vfs::RootAccess access{1234, 1234, 0777};
  const struct timespec times[2] = {{5, 0}, {5, 0}};
  const std::vector<std::pair<const char*, std::function<bool()>>> calls = {
      {"create", [&] { return tree.create_file("view/x/below/new").has_value(); }},
      {"mkdir", [&] { return tree.make_directory("view/x/below/new").has_value(); }},
      {"mkdir -p", [&] { return tree.make_view_directories("x/below/new/deep", access).has_value(); }},
      {"mknod",
       [&] {
         return tree.make_special("view/x/below/new", {0, 0, S_IFIFO | 0666}, {}).has_value();
       }},
      {"symlink", [&] { return tree.make_symlink("/", "view/x/below/new").has_value(); }},
      {"link to", [&] { return tree.link("view/own/file", "view/x/below/new").has_value(); }},
      {"link from", [&] { return tree.link("view/x/below/file", "view/own/theirs").has_value(); }},
      {"rename to", [&] { return tree.rename("view/own/file", "view/x/below/new").has_value(); }},
      {"rename from", [&] { return tree.rename("view/x/below/file", "view/own/theirs").has_value(); }},
      {"unlink", [&] { return tree.unlink("view/x/below/file", true).has_value(); }},
      {"set aside", [&] { return tree.set_aside("x/below/file").has_value(); }},
      {"chown", [&] { return tree.set_owner("view/x/below/file", 1234, 1234).has_value(); }},
      {"chmod", [&] { return tree.set_mode("view/x/below/file", 0777).has_value(); }},
      {"utimens", [&] { return tree.set_times("view/x/below/file", times).has_value(); }},
      {"setxattr", [&] { return tree.set_xattr("view/x/below/file", "user.new", "1", 0).has_value(); }},
      {"copy", [&] { return unshare("view/x/below/file").has_value(); }},
      {"rmdir", [&] { return tree.remove_directory("view/x/below").has_value(); }},
      {"an open file",
       [&] { return tree.link(tree.open_file("view/own/file", false).value(), "view/x/below/new").has_value(); }},
  };
  for (const auto& [name, call] : calls) {
    EXPECT_FALSE(call()) << name;
    EXPECT_EQ(state_outside(), before) << name;
  }
  vfs::set_mark(tree, "view/x/below/file", vfs::kScopeMark, "1");
  EXPECT_TRUE(tree.unlink("view/x/below/file")) << "nothing is there";
  EXPECT_TRUE(tree.remove_tree("view/x/below"));
  EXPECT_EQ(state_outside(), before);
  EXPECT_EQ(text("view/own/file"), "ours");
}

/// The last component may be a link itself: what is asked of the name is asked of the link.
TEST_P(ExchangedDirectory, IsItselfALinkThatNobodyFollows) {
  const std::string before = state_outside();
  EXPECT_EQ(tree.read_link("view/x").value_or("no link"), outside.string());
  EXPECT_FALSE(tree.set_mode("view/x", 0777)) << "no link of the disk's belongs to anybody";
  EXPECT_FALSE(tree.set_owner("view/x", ::geteuid(), ::getegid()));
  EXPECT_TRUE(tree.remove_tree("view/x"));
  EXPECT_FALSE(tree.stat("view/x").value());
  EXPECT_EQ(state_outside(), before);
}

TEST_P(ExchangedDirectory, IsNotLeftByDotsEither) {
  for (const char* path : {"view/..", "view/own/../..", "view/own/../../outside/below", ".."}) {
    EXPECT_FALSE(tree.stat(path)) << path;
    EXPECT_FALSE(tree.open_directory(path)) << path;
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, ExchangedDirectory, ::testing::Values("", "tree.open_beneath=ENOSYS"),
                         [](const auto& way) { return *way.param == '\0' ? "openat2" : "walk"; });

}  // namespace
}  // namespace inductorfs::testing
