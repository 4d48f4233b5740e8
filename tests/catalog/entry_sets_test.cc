// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "catalog/tree/entry_tree.h"

/// Which Triton sets the tree shows: each as a whole.
namespace inductorfs::catalog {
namespace {

codec::Entry entry(const std::string& path, const std::string& bytes) {
  return {path, codec::digest_of(bytes), bytes.size(), 0644, 0, "host/mount"};
}

class Sets : public ::testing::Test {
 protected:
  using Files = std::vector<std::pair<std::string, std::string>>;  ///< names and bytes

  void set(const Files& files, ScopeIndex scope = 0) {
    for (const auto& [name, bytes] : files) (void)tree.set(scope, entry(in(name), bytes));
  }
  void hide(const Files& files, const std::string& root = {}) {
    for (const auto& [name, bytes] : files)
      tree.mark_hidden(HiddenMarks::path_of({in(name), root}), codec::digest_of(bytes));
  }
  /// The bytes of what is listed; every listed file is found, and no other.
  [[nodiscard]] std::string shown(const std::string& root = {}) const {
    std::string text;
    const auto listed = tree.list({key, root});
    for (const char* name : {"k.json", "k.ptx", "k.so"}) {
      const auto found = tree.find({in(name), root});
      EXPECT_EQ(found.has_value(), std::ranges::any_of(listed, [&](const Child& child) { return child.name == name; }));
      for (const char* bytes : {"a", "b", "c"}) {
        if (found && found->entry.digest == codec::digest_of(bytes)) text += bytes;
      }
    }
    EXPECT_EQ(tree.entries_in({key, root}).size(), listed.size());
    EXPECT_EQ(tree.has_directory({"triton", root}), !listed.empty());
    return text;
  }
  [[nodiscard]] std::string in(const std::string& name) const { return key + "/" + name; }

  const std::string key = "triton/@/" + std::string(52, 'A');
  EntryTree tree{{"aa", "bb"}, 100};
};

TEST_F(Sets, AreHiddenAsAWholeAndStayAwayWhenAnotherWithEqualFilesIsMade) {
  const Files first{{"k.ptx", "a"}, {"k.json", "b"}};
  set(first);
  EXPECT_EQ(shown(), "ba");
  hide(first);
  EXPECT_EQ(shown(), "");
  tree.unmark_hidden(in("k.ptx"), codec::digest_of("a"));
  EXPECT_EQ(shown(), "ba") << "one file that is not marked: it is another set";
  hide(first);
  const Files second{{"k.ptx", "a"}, {"k.json", "c"}};
  set(second);
  EXPECT_EQ(shown(), "ca") << "another set is shown whole, although a file of it is marked";
  set(first);
  EXPECT_EQ(shown(), "") << "the deleted one comes again";
  EXPECT_EQ(tree.visible(), 0U);
}

TEST_F(Sets, AreHiddenInOneRootByAllTheirFilesToo) {
  const Files first{{"k.ptx", "a"}, {"k.json", "b"}};
  set(first);
  hide(first, "alice");
  EXPECT_EQ(shown("alice"), "");
  EXPECT_EQ(shown("bob"), "ba");
  set({{"k.json", "c"}});
  EXPECT_EQ(shown("alice"), "ca");
}

TEST_F(Sets, AreAwayWithOneLostOrUnusableFileButWhatLiesBesideThemStays) {
  const Files first{{"k.ptx", "a"}, {"k.json", "b"}, {"k.so", "c"}};
  set(first);
  EXPECT_EQ(shown(), "bac");
  tree.mark_lost(in("k.ptx"), codec::digest_of("a"));
  EXPECT_EQ(shown(), "c") << "a launcher is of no set";
  set({{"k.ptx", "a"}});
  EXPECT_EQ(shown(), "bac");
  tree.mark_unfit(in("k.json"), codec::digest_of("b"), "a part");
  EXPECT_EQ(shown(), "c");
  set({{"k.ptx", "c"}});
  EXPECT_EQ(shown(), "bcc") << "with another file of the set it is looked at again";
}

TEST_F(Sets, OfOneScopeAreShownWithoutFilesOfAnother) {
  set({{"k.ptx", "a"}});
  set({{"k.ptx", "b"}, {"k.json", "b"}}, 1);
  EXPECT_EQ(shown(), "a");
  hide({{"k.ptx", "a"}});
  EXPECT_EQ(shown(), "bb");
}

TEST_F(Sets, GoWithEachNameInTheirDirectory) {
  set({{"k.ptx", "a"}, {"k.json", "b"}});
  EXPECT_EQ(tree.files_of(in("k.ptx")).size(), 2U);
  EXPECT_EQ(tree.files_of(in("other")).size(), 2U) << "a file of a set of this host";
}

}  // namespace
}  // namespace inductorfs::catalog
