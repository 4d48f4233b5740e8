// SPDX-License-Identifier: Apache-2.0
#include "tree.h"

#include <gtest/gtest.h>

#include <random>

namespace inductorfs::catalog {
namespace {

codec::Entry entry(const std::string& path, const std::string& bytes = "bytes", int64_t mtime = 0) {
  return {path, codec::digest_of(bytes), bytes.size(), 0644, mtime, "host/mount"};
}

std::vector<std::string> names(const std::vector<Child>& children) {
  std::vector<std::string> found;
  for (const auto& child : children) found.push_back(child.name + (child.directory ? "/" : ""));
  return found;
}

using Names = std::vector<std::string>;

TEST(Tree, ListsChildrenInOrderAndTellsDirectoriesFromFiles) {
  Tree tree({"aa"}, 100);
  for (const char* path : {"b/x", "a", "b/a/y", "c"}) EXPECT_EQ(tree.set(0, entry(path)), Tree::Change::kVisible);
  EXPECT_EQ(names(tree.list("")), (Names{"a", "b/", "c"}));
  EXPECT_EQ(names(tree.list("b")), (Names{"a/", "x"}));
  EXPECT_TRUE(tree.list("a").empty());
  EXPECT_TRUE(tree.list("nowhere/at/all").empty());
  EXPECT_TRUE(tree.has_directory(""));
  EXPECT_TRUE(tree.has_directory("b/a"));
  EXPECT_FALSE(tree.has_directory("a"));
  EXPECT_FALSE(tree.has_directory("b/a/y"));
  EXPECT_FALSE(tree.has_directory("b/nothing"));
}

TEST(Tree, FindGivesTheWholeEntryAndItsScope) {
  Tree tree({"aa", "bb"}, 100);
  const auto given = entry("d/f", "other bytes", 77);
  EXPECT_EQ(tree.set(1, given), Tree::Change::kVisible);
  const auto known = tree.find("d/f");
  ASSERT_TRUE(known);
  EXPECT_EQ(known->entry, given);
  EXPECT_EQ(known->scope, "bb");
  EXPECT_FALSE(tree.find("d"));
  EXPECT_FALSE(tree.find(""));
}

TEST(Tree, OnlyChangesThatCanBeSeenAreChanges) {
  Tree tree({"aa"}, 100);
  EXPECT_EQ(tree.set(0, entry("f")), Tree::Change::kVisible);
  EXPECT_EQ(tree.set(0, entry("f")), Tree::Change::kNone);
  EXPECT_EQ(tree.set(0, entry("f", "new")), Tree::Change::kVisible);
  auto chmod = entry("f", "new");
  chmod.mode = 0755;
  EXPECT_EQ(tree.set(0, chmod), Tree::Change::kVisible);
  EXPECT_TRUE(tree.remove(0, "f"));
  EXPECT_FALSE(tree.remove(0, "f"));
}

TEST(Tree, RemovingTheLastEntryRemovesItsDirectories) {
  Tree tree({"aa"}, 100);
  (void)tree.set(0, entry("a/b/c/f"));
  (void)tree.set(0, entry("a/g"));
  EXPECT_TRUE(tree.remove(0, "a/b/c/f"));
  EXPECT_FALSE(tree.has_directory("a/b"));
  EXPECT_EQ(names(tree.list("a")), (Names{"g"}));
  // The name is free for a file now.
  EXPECT_EQ(tree.set(0, entry("a/b")), Tree::Change::kVisible);
}

TEST(Tree, AnotherScopesRemovalLeavesTheEntry) {
  Tree tree({"aa", "bb"}, 100);
  (void)tree.set(0, entry("f"));
  EXPECT_FALSE(tree.remove(1, "f"));
  EXPECT_TRUE(tree.find("f"));
}

TEST(Tree, OneNameIsNeverFileAndDirectory) {
  Tree tree({"aa"}, 100);
  (void)tree.set(0, entry("a/f"));
  EXPECT_EQ(tree.set(0, entry("a")), Tree::Change::kRefused);
  EXPECT_EQ(tree.set(0, entry("a/f/g/h")), Tree::Change::kRefused);
  EXPECT_EQ(tree.set(0, entry("")), Tree::Change::kRefused);
  EXPECT_EQ(tree.known(), 1U);
  EXPECT_EQ(names(tree.list("a")), (Names{"f"}));
}

TEST(Tree, TheLimitRefusesNewNamesButNotNewBytes) {
  Tree tree({"aa"}, 2);
  (void)tree.set(0, entry("a"));
  (void)tree.set(0, entry("b"));
  EXPECT_EQ(tree.set(0, entry("deep/down/c")), Tree::Change::kRefused);
  EXPECT_FALSE(tree.has_directory("deep"));
  EXPECT_EQ(tree.set(0, entry("b", "new")), Tree::Change::kVisible);
}

TEST(Tree, HiddenEntriesCountNowhere) {
  Tree tree({"aa"}, 100);
  (void)tree.set(0, entry("d/f"));
  (void)tree.set(0, entry("d/g"));
  tree.mark_hidden("d/f", entry("d/f").digest);
  EXPECT_FALSE(tree.find("d/f"));
  EXPECT_TRUE(tree.find_known("d/f"));
  EXPECT_EQ(names(tree.list("d")), (Names{"g"}));
  tree.mark_hidden("d/g", entry("d/g").digest);
  EXPECT_FALSE(tree.has_directory("d"));
  EXPECT_TRUE(tree.newest(10).empty());
  EXPECT_EQ(tree.visible(), 0U);
  EXPECT_EQ(tree.known(), 2U);
  tree.unmark_hidden("d/g", entry("d/g").digest);
  EXPECT_TRUE(tree.find("d/g"));
}

TEST(Tree, AMarkOutlivesItsEntryAndOtherBytesOfItsPath) {
  Tree tree({"aa"}, 100);
  (void)tree.set(0, entry("f"));
  tree.mark_hidden("f", entry("f").digest);
  (void)tree.remove(0, "f");
  EXPECT_EQ(tree.set(0, entry("f")), Tree::Change::kHidden);
  EXPECT_TRUE(tree.take_dropped_marks().empty());
  EXPECT_EQ(tree.set(0, entry("f", "new")), Tree::Change::kVisible);
  EXPECT_TRUE(tree.take_dropped_marks().empty());
  EXPECT_EQ(tree.set(0, entry("f")), Tree::Change::kVisible) << "what could be seen went";
  EXPECT_FALSE(tree.find("f"));
}

TEST(Tree, LostEntriesComeBackWhenTheyAreSetAgain) {
  Tree tree({"aa"}, 100);
  (void)tree.set(0, entry("f"));
  tree.mark_lost("f", codec::digest_of("not this"));
  EXPECT_TRUE(tree.find("f"));
  tree.mark_lost("f", entry("f").digest);
  EXPECT_FALSE(tree.find("f"));
  EXPECT_FALSE(tree.find_known("f"));
  EXPECT_EQ(tree.set(0, entry("f")), Tree::Change::kVisible);
  EXPECT_TRUE(tree.find("f"));
}

TEST(Tree, EntriesInADirectoryAreThoseDirectlyInIt) {
  Tree tree({"aa"}, 100);
  for (const char* path : {"d/a", "d/b", "d/sub/c", "e"}) (void)tree.set(0, entry(path));
  Names paths;
  for (const auto& known : tree.entries_in("d")) paths.push_back(known.entry.path);
  EXPECT_EQ(paths, (Names{"d/a", "d/b"}));
  EXPECT_EQ(tree.entries_in("").size(), 1U);
}

TEST(Tree, NewestFirstAndNoMoreThanAsked) {
  Tree tree({"aa"}, 100);
  for (int i = 0; i < 20; ++i) {
    (void)tree.set(0, entry("d" + std::to_string(i % 3) + "/" + std::to_string(i), "bytes", (i * 7) % 20));
  }
  const auto newest = tree.newest(5);
  ASSERT_EQ(newest.size(), 5U);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(newest[static_cast<size_t>(i)].entry.mtime_ns, 19 - i);
  EXPECT_EQ(tree.newest(100).size(), 20U);
  EXPECT_TRUE(tree.newest(0).empty());
}

TEST(Tree, CandidatesAreOfOneScopeAndBelowTheDirectory) {
  Tree tree({"aa", "bb"}, 100);
  (void)tree.set(0, entry("key/one"));
  (void)tree.set(0, entry("key/two"));
  (void)tree.set(1, entry("key/three"));
  (void)tree.set(0, entry("keyed"));
  tree.mark_hidden("key/one", entry("key/one").digest);
  tree.mark_lost("key/two", entry("key/two").digest);
  const auto found = tree.candidates("aa", "key");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].path, "key/one");
  EXPECT_FALSE(found[0].lost);
  EXPECT_TRUE(found[1].lost);
  EXPECT_TRUE(tree.candidates("cc", "key").empty());
}

TEST(Tree, AWatchTellsWhatWasTouchedMeanwhile) {
  Tree tree({"aa"}, 100);
  tree.watch({"a", "b", "c"});
  (void)tree.set(0, entry("a"));
  (void)tree.remove(0, "b");
  (void)tree.set(0, entry("x"));
  EXPECT_EQ(tree.end_watch(), (std::set<std::string>{"a", "b"}));
  (void)tree.set(0, entry("c"));
  EXPECT_TRUE(tree.end_watch().empty());
}

/// Random operations against the plainest model there is: a map from path to (digest, hidden).
TEST(Tree, AgreesWithAMapAfterManyRandomChanges) {
  std::mt19937 random(7);
  Tree tree({"aa"}, 1'000);
  std::map<std::string, std::string> bytes_of;
  std::set<std::pair<std::string, std::string>> marks;
  const auto roll = [&](unsigned sides) { return static_cast<unsigned>(random() % sides); };
  for (int round = 0; round < 20'000; ++round) {
    const std::string path =
        "d" + std::to_string(roll(4)) + "/e" + std::to_string(roll(4)) + "/" + std::to_string(roll(5));
    const std::string bytes = std::to_string(roll(2));
    switch (roll(4)) {
      case 0:
        bytes_of.erase(path);
        (void)tree.remove(0, path);
        break;
      case 1:
        if (!bytes_of.contains(path)) break;
        marks.insert({path, bytes_of[path]});
        tree.mark_hidden(path, codec::digest_of(bytes_of[path]));
        break;
      default:
        bytes_of[path] = bytes;
        EXPECT_NE(tree.set(0, entry(path, bytes)), Tree::Change::kRefused);
    }
  }
  std::set<std::string> visible_directories;
  uint64_t visible = 0;
  for (const auto& [path, bytes] : bytes_of) {
    const bool shown = !marks.contains({path, bytes});
    EXPECT_EQ(tree.find(path).has_value(), shown) << path;
    if (!shown) continue;
    ++visible;
    visible_directories.insert(path.substr(0, 2));
    visible_directories.insert(path.substr(0, 5));
  }
  EXPECT_EQ(tree.visible(), visible);
  EXPECT_EQ(tree.known(), bytes_of.size());
  for (int d = 0; d < 4; ++d) {
    const std::string directory = "d" + std::to_string(d);
    EXPECT_EQ(tree.has_directory(directory), visible_directories.contains(directory));
    for (int e = 0; e < 4; ++e) {
      const std::string below = directory + "/e" + std::to_string(e);
      EXPECT_EQ(tree.has_directory(below), visible_directories.contains(below));
    }
  }
}

}  // namespace
}  // namespace inductorfs::catalog
