// SPDX-License-Identifier: Apache-2.0
#include "catalog/tree/entry_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "inductorfs/layout/start_list.h"

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
  EntryTree tree({"aa"}, 100);
  for (const char* path : {"b/x", "a", "b/a/y", "c"}) EXPECT_EQ(tree.set(0, entry(path)), EntryTree::Change::kVisible);
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
  EntryTree tree({"aa", "bb"}, 100);
  const auto given = entry("d/f", "other bytes", 77);
  EXPECT_EQ(tree.set(1, given), EntryTree::Change::kVisible);
  const auto known = tree.find("d/f");
  ASSERT_TRUE(known);
  EXPECT_EQ(known->entry, given);
  EXPECT_EQ(known->scope, "bb");
  EXPECT_FALSE(tree.find("d"));
  EXPECT_FALSE(tree.find(""));
}

TEST(Tree, PagesOfAScopeAreAllOfItsEntriesOnceAlthoughOthersComeAndGo) {
  EntryTree tree({"aa", "bb"}, 100);
  // "d-" is before "d/" as a string, and after it in the tree.
  for (const char* path : {"d/e/f", "d-", "d/a", "z", "b/x/y/z", "d/e-", "d/e/a"}) {
    EXPECT_EQ(tree.set(0, entry(path, path)), EntryTree::Change::kVisible);
  }
  EXPECT_EQ(tree.set(1, entry("d/b")), EntryTree::Change::kVisible);
  const PathTree::Page whole = tree.paths().page_of(0, "", 100);
  const std::vector<codec::Entry>& all = whole.entries;
  ASSERT_EQ(all.size(), 7U);
  EXPECT_FALSE(whole.next);
  for (const auto& one : all) EXPECT_EQ(one, entry(one.path, one.path));
  EXPECT_TRUE(tree.paths().page_of(0, all.back().path, 100).entries.empty());
  for (size_t limit = 1; limit < 8; ++limit) {
    std::vector<codec::Entry> paged;
    for (std::optional<std::string> after = ""; after;) {
      const auto page = tree.paths().page_of(0, *after, limit);
      EXPECT_LE(page.entries.size(), limit);
      paged.insert(paged.end(), page.entries.begin(), page.entries.end());
      after = page.next;
    }
    EXPECT_EQ(paged, all) << limit;
  }
  // The last one of a page may go, or become a directory, before the next page.
  EXPECT_TRUE(tree.remove(0, "d/e/a"));
  EXPECT_EQ(tree.paths().page_of(0, "d/e/a", 1).entries.front().path, "d/e/f");
  EXPECT_EQ(tree.set(0, entry("d/e/a/below")), EntryTree::Change::kVisible);
  EXPECT_EQ(tree.paths().page_of(0, "d/e/a", 1).entries.front().path, "d/e/a/below");
}

TEST(Tree, APageLooksAtNoMoreFilesThanItsLimitWhateverScopeHasThem) {
  constexpr size_t kOthers = 2 * PathTree::kPageMost;
  EntryTree tree({"aa", "bb"}, kOthers + 2);
  for (size_t i = 0; i < kOthers; ++i) (void)tree.set(1, entry("d/" + std::to_string(i)));
  EXPECT_EQ(tree.set(0, entry("a")), EntryTree::Change::kVisible);
  EXPECT_EQ(tree.set(0, entry("z")), EntryTree::Change::kVisible);
  size_t pages = 0;
  std::vector<std::string> found;
  for (std::optional<std::string> after = ""; after; ++pages) {
    const auto page = tree.paths().page_of(0, *after, 100);
    for (const auto& one : page.entries) found.push_back(one.path);
    after = page.next;
  }
  EXPECT_EQ(found, (Names{"a", "z"}));
  EXPECT_EQ(pages, 3U);
}

TEST(Tree, AScopeThatIsStillToBeRemovedCountsOnlyForTheLimit) {
  EntryTree tree({"aa"}, 2);
  EXPECT_EQ(tree.set(0, entry("f")), EntryTree::Change::kVisible);
  EXPECT_EQ(tree.set(0, entry(layout::start_list_path("key"))), EntryTree::Change::kHidden);
  EXPECT_EQ(tree.start_lists(), 1U);
  (void)tree.follow({"bb"});
  EXPECT_EQ(tree.known(), 0U);
  EXPECT_EQ(tree.visible(), 0U);
  EXPECT_EQ(tree.start_lists(), 0U);
  EXPECT_EQ(tree.paths().page_of(0, "", 9).entries.size(), 2U) << "who writes it down needs it";
  const ScopeIndex next = *tree.scopes().index_of("bb");
  EXPECT_EQ(tree.set(next, entry("g")), EntryTree::Change::kRefused);
  EXPECT_TRUE(tree.remove(0, "f"));
  EXPECT_EQ(tree.set(next, entry("g")), EntryTree::Change::kVisible);
}

TEST(Tree, ShowsNoStartListButToWhoAsksForOne) {
  EntryTree tree({"aa", "bb"}, 100);
  const std::string path = layout::start_list_path("fxgraph/key");
  EXPECT_EQ(tree.set(0, entry("f")), EntryTree::Change::kVisible);
  EXPECT_EQ(tree.set(0, entry(path, "first")), EntryTree::Change::kHidden);
  EXPECT_EQ(tree.set(0, entry(path, "second")), EntryTree::Change::kHidden);
  EXPECT_FALSE(tree.find(path));
  EXPECT_FALSE(tree.has_directory(".starts"));
  EXPECT_EQ(names(tree.list("")), Names{"f"});
  EXPECT_EQ(tree.newest(10).size(), 1U);
  EXPECT_EQ(tree.visible(), 1U);
  EXPECT_EQ(tree.known(), 2U);
  EXPECT_EQ(tree.start_lists(), 1U);
  const auto list = tree.start_list("", "fxgraph/key");
  ASSERT_TRUE(list);
  EXPECT_EQ(list->entry.digest, codec::digest_of("second"));
  EXPECT_FALSE(tree.start_list("", "fxgraph/other"));
  (void)tree.show("root", {"bb"});
  EXPECT_FALSE(tree.start_list("root", "fxgraph/key")) << "of a scope that the root does not show";
  // A program cannot bring one to light: its own file of that name, removed, hides what it hid before.
  tree.mark_hidden(path, list->entry.digest);
  tree.unmark_hidden(path, list->entry.digest);
  EXPECT_FALSE(tree.find(path));
  tree.mark_lost(path, list->entry.digest);
  EXPECT_FALSE(tree.start_list("", "fxgraph/key"));
  EXPECT_FALSE(tree.remove(0, path)) << "nobody could see it";
}

TEST(Tree, OnlyChangesThatCanBeSeenAreChanges) {
  EntryTree tree({"aa"}, 100);
  EXPECT_EQ(tree.set(0, entry("f")), EntryTree::Change::kVisible);
  EXPECT_EQ(tree.set(0, entry("f")), EntryTree::Change::kNone);
  EXPECT_EQ(tree.set(0, entry("f", "new")), EntryTree::Change::kVisible);
  auto chmod = entry("f", "new");
  chmod.mode = 0755;
  EXPECT_EQ(tree.set(0, chmod), EntryTree::Change::kVisible);
  EXPECT_TRUE(tree.remove(0, "f"));
  EXPECT_FALSE(tree.remove(0, "f"));
}

TEST(Tree, RemovingTheLastEntryRemovesItsDirectories) {
  EntryTree tree({"aa"}, 100);
  (void)tree.set(0, entry("a/b/c/f"));
  (void)tree.set(0, entry("a/g"));
  EXPECT_TRUE(tree.remove(0, "a/b/c/f"));
  EXPECT_FALSE(tree.has_directory("a/b"));
  EXPECT_EQ(names(tree.list("a")), (Names{"g"}));
  // The name is free for a file now.
  EXPECT_EQ(tree.set(0, entry("a/b")), EntryTree::Change::kVisible);
}

TEST(Tree, AnotherScopesRemovalLeavesTheEntry) {
  EntryTree tree({"aa", "bb"}, 100);
  (void)tree.set(0, entry("f"));
  EXPECT_FALSE(tree.remove(1, "f"));
  EXPECT_TRUE(tree.find("f"));
}

TEST(Tree, OfTwoScopesTheOneThatSortsFirstIsSeenWhateverTheOrder) {
  for (const bool first : {true, false}) {
    EntryTree tree({"bb", "aa"}, 100);  // "bb" is 0, "aa" is 1
    const ScopeIndex behind = 0;
    const ScopeIndex front = 1;
    EXPECT_EQ(tree.set(first ? front : behind, entry("f", first ? "front" : "behind")), EntryTree::Change::kVisible);
    EXPECT_EQ(tree.set(first ? behind : front, entry("f", first ? "behind" : "front")), EntryTree::Change::kVisible)
        << "a root may show either";
    EXPECT_EQ(tree.find("f")->scope, "aa");
    EXPECT_EQ(tree.find("f")->entry, entry("f", "front"));
    EXPECT_EQ(tree.known(), 2U);
    EXPECT_EQ(tree.visible(), 2U);
    EXPECT_EQ(tree.find_known("bb", "f"), entry("f", "behind"));
    EXPECT_EQ(tree.files_of("f").size(), 2U);
    EXPECT_EQ(tree.set(behind, entry("f", "newer")), EntryTree::Change::kVisible);
    EXPECT_EQ(tree.known(), 2U);
    EXPECT_TRUE(tree.remove(front, "f")) << "what can be seen changed";
    EXPECT_EQ(tree.find("f")->entry, entry("f", "newer"));
    EXPECT_EQ(tree.find("f")->scope, "bb");
    EXPECT_FALSE(tree.remove(front, "f"));
    EXPECT_TRUE(tree.remove(behind, "f"));
    EXPECT_EQ(tree.known(), 0U);
  }
}

TEST(Tree, WhatWasPublishedIsKnownToWhoHidesItUntilTheTailBringsIt) {
  EntryTree tree({"aa"}, 100);
  const auto older = entry("f", "older");
  const auto ours = entry("f", "ours");
  (void)tree.set(0, ours);
  tree.echoes().await("f", ours.digest);
  (void)tree.set(0, older);  // the tail is one change behind
  EXPECT_EQ(tree.files_of("f"), (EntryTree::Files{{"f", older.digest}, {"f", ours.digest}}));
  for (const auto& [path, digest] : tree.files_of("f")) tree.mark_hidden(path, digest);
  EXPECT_EQ(tree.set(0, ours), EntryTree::Change::kHidden);
  EXPECT_EQ(tree.files_of("f"), (EntryTree::Files{{"f", ours.digest}}));
}

TEST(Tree, ALaterEchoEndsTheWaitForAnEarlierOne) {
  EntryTree tree({"aa"}, 100);
  const auto first = entry("f", "first");
  const auto second = entry("f", "second");
  tree.echoes().await("f", first.digest);
  tree.echoes().await("f", second.digest);
  EXPECT_EQ(tree.files_of("f").size(), 2U);
  (void)tree.set(0, second);
  EXPECT_EQ(tree.files_of("f"), (EntryTree::Files{{"f", second.digest}}));
}

TEST(Tree, WaitsForNoMoreEchoesThanItsLimit) {
  EntryTree tree({"aa"}, 100);
  for (int i = 0; i < 5'000; ++i) tree.echoes().await(std::to_string(i), entry("f").digest);
  EXPECT_TRUE(tree.files_of("0").empty());
  EXPECT_FALSE(tree.files_of("4999").empty());
}

TEST(Tree, AMarkHidesWhatStandsBehindToo) {
  EntryTree tree({"aa", "bb"}, 100);
  (void)tree.set(0, entry("f", "front"));
  (void)tree.set(1, entry("f", "behind"));
  for (const auto& [path, digest] : tree.files_of("f")) tree.mark_hidden(path, digest);
  EXPECT_FALSE(tree.find("f"));
  EXPECT_FALSE(tree.remove(0, "f")) << "nothing that could be seen";
  EXPECT_FALSE(tree.find("f"));
  EXPECT_EQ(tree.visible(), 0U);
  tree.unmark_hidden("f", entry("f", "behind").digest);
  EXPECT_TRUE(tree.find("f"));
}

TEST(Tree, WhatIsNoLongerFollowedIsOutOfSightAtOnceAndTakesNothing) {
  EntryTree tree({"aa", "bb"}, 100);
  (void)tree.set(0, entry("d/f"));
  (void)tree.set(0, entry("g", "front"));
  (void)tree.set(1, entry("g", "behind"));
  const Following following = tree.follow({"bb", "cc"});
  EXPECT_EQ(following.gone, (std::set<ScopeIndex>{0}));
  EXPECT_TRUE(following.some_new);
  EXPECT_EQ(following.scopes.size(), 2U);
  EXPECT_FALSE(tree.find("d/f"));
  EXPECT_TRUE(tree.list("d").empty());
  EXPECT_TRUE(tree.entries_in("d").empty());
  ASSERT_EQ(tree.newest(10).size(), 1U);
  EXPECT_EQ(tree.newest(10).front().scope, "bb") << "what stood behind is in sight at once";
  EXPECT_EQ(tree.set(0, entry("h")), EntryTree::Change::kGone);
  EXPECT_EQ(tree.scopes().index_of("aa"), std::nullopt);
  // Its name may be taken before it is removed.
  EXPECT_EQ(tree.set(*tree.scopes().index_of("cc"), entry("d/f", "cc")), EntryTree::Change::kVisible);
  EXPECT_EQ(tree.find("d/f")->scope, "cc");
  Names changed;
  for (const auto& path : tree.paths().of_scope(0)) {
    if (tree.remove(0, path)) changed.push_back(path);
  }
  EXPECT_EQ(changed, (Names{"d/f", "g"}));
  EXPECT_EQ(tree.find("d/f")->scope, "cc");
  EXPECT_EQ(tree.find("g")->scope, "bb");
  EXPECT_EQ(tree.known(), 2U);
  EXPECT_EQ(tree.visible(), 2U);
  EXPECT_NE(tree.follow({"aa"}).scopes.front().index, 0U) << "its earlier following is over";
}

TEST(Tree, WhatComesBeforeTheRemovalOfTheFirstOfThreeIsInOrderToo) {
  EntryTree tree({"aa", "bb", "cc"}, 100);
  (void)tree.set(0, entry("f", "aa"));
  (void)tree.set(2, entry("f", "cc"));
  (void)tree.follow({"bb", "cc"});
  EXPECT_EQ(tree.set(2, entry("f", "cc2")), EntryTree::Change::kVisible);
  EXPECT_EQ(tree.find("f")->entry, entry("f", "cc2"));
  EXPECT_EQ(tree.set(1, entry("f", "bb")), EntryTree::Change::kVisible);
  EXPECT_EQ(tree.find("f")->scope, "bb");
  EXPECT_TRUE(tree.remove(0, "f")) << "what was shown when its scope went";
  EXPECT_EQ(tree.find("f")->scope, "bb");
  EXPECT_EQ(tree.known(), 2U);
}

TEST(Tree, TheLimitCountsWhatStandsBehind) {
  EntryTree tree({"aa", "bb"}, 1);
  (void)tree.set(0, entry("f"));
  EXPECT_EQ(tree.set(1, entry("f")), EntryTree::Change::kRefused);
  EXPECT_TRUE(tree.remove(0, "f"));
  EXPECT_EQ(tree.set(1, entry("f")), EntryTree::Change::kVisible);
}

TEST(Tree, ARootShowsItsOwnScopesAndTheMountpointsWhereItHasNone) {
  EntryTree tree({"aa", "bb"}, 100);
  (void)tree.set(0, entry("d/f", "aa"));
  (void)tree.set(1, entry("d/f", "bb"));
  (void)tree.set(1, entry("d/g", "bb"));
  EXPECT_TRUE(tree.show("alice", {"bb"}).empty()) << "nobody can know its names yet";
  EXPECT_TRUE(tree.show("", {"aa"}).empty());
  EXPECT_TRUE(tree.show("nobody", {}).empty());
  EXPECT_EQ(tree.find({"d/f", "alice"})->scope, "bb");
  EXPECT_EQ(tree.find({"d/f", "other"})->scope, "aa");
  EXPECT_EQ(tree.find("d/f")->scope, "aa");
  EXPECT_FALSE(tree.find({"d/f", "nobody"}));
  EXPECT_EQ(names(tree.list({"d", "alice"})), (Names{"f", "g"}));
  EXPECT_EQ(names(tree.list("d")), (Names{"f"}));
  EXPECT_EQ(tree.entries_in({"d", "alice"}).size(), 2U);
  EXPECT_EQ(tree.entries_in("d").size(), 1U);
  EXPECT_FALSE(tree.has_directory({"d", "nobody"}));
  EXPECT_TRUE(tree.list({"", "nobody"}).empty());
  EXPECT_EQ(tree.show("alice", {"aa"}), (Names{"d/f", "d/f", "d/g"})) << "of both scopes: one came, one went";
  EXPECT_EQ(names(tree.list({"d", "alice"})), (Names{"f"}));
  tree.forget_shown("nobody");
  EXPECT_TRUE(tree.has_directory({"d", "nobody"}));
}

/// Whoever may delete in the mountpoint must not delete for a user what he has never been shown.
TEST(Tree, AMarkOfTheMountpointHidesNothingOfAnothersScopes) {
  EntryTree tree({"everybodys", "hers"}, 100);
  (void)tree.show("", {"everybodys"});
  (void)tree.show("alice", {"hers"});
  (void)tree.set(1, entry("f", "hers"));
  EXPECT_TRUE(tree.files_of("f").empty()) << "nothing of it is there";
  EXPECT_EQ(tree.files_of({"f", "alice"}).size(), 1U);
  tree.mark_hidden("f", entry("f", "hers").digest);
  EXPECT_TRUE(tree.find({"f", "alice"}));
  (void)tree.remove(1, "f");
  (void)tree.set(1, entry("f", "hers"));
  EXPECT_TRUE(tree.find({"f", "alice"})) << "when it comes again, too";
  (void)tree.set(0, entry("f", "hers"));
  EXPECT_FALSE(tree.find("f"));
}

TEST(Tree, WhatARootShowsComesAndGoesWithTheFollowing) {
  EntryTree tree({"aa"}, 100);
  (void)tree.show("", {"aa"});
  (void)tree.show("alice/a", {"bb"});
  (void)tree.show("alice/b", {"bb"});
  const Following following = tree.follow({"aa", "bb"});
  (void)tree.set(*tree.scopes().index_of("bb"), entry("f"));
  EXPECT_TRUE(tree.find({"f", "alice/a"}));
  EXPECT_FALSE(tree.find("f"));
  (void)tree.follow({"aa"});
  EXPECT_FALSE(tree.find({"f", "alice/a"}));
  (void)tree.follow({"aa", "bb"});
  (void)tree.set(*tree.scopes().index_of("bb"), entry("f"));
  EXPECT_TRUE(tree.find({"f", "alice/a"}));
  tree.forget_shown("alice/a");
  EXPECT_FALSE(tree.find({"f", "alice/a"})) << "the mountpoint's scopes are its own now";
  EXPECT_TRUE(tree.find({"f", "alice/b"}));
}

/// A tree beside a map from path to what each scope has.
class ModelledTree {
 public:
  EntryTree tree{all, 1'000};

  void change(unsigned what, const std::string& path, const std::string& bytes) {
    const auto index = tree.scopes().index_of(all[roll(3)]);
    if (what == 0) {
      follow();
    } else if (what < 4) {
      purge();
    } else if (what < 7) {
      const std::string root = roots[roll(3)];
      shown[root] = some();
      (void)tree.show(root, shown[root]);
    } else if (index && what < 40) {
      (void)tree.remove(*index, path);
      model[path].erase(id_of(*index));
    } else if (index) {
      ASSERT_NE(tree.set(*index, entry(path, bytes)), EntryTree::Change::kRefused);
      model[path][id_of(*index)] = bytes;
    }
  }
  void compare() {
    purge();
    uint64_t known = 0;
    for (const auto& [at, scopes] : model) known += scopes.size();
    ASSERT_EQ(tree.known(), known);
    ASSERT_EQ(tree.visible(), known);
    for (const std::string& root : roots) compare(root);
  }
  unsigned roll(unsigned sides) { return static_cast<unsigned>(random() % sides); }

 private:
  using Scopes = std::vector<remote::ScopeId>;

  [[nodiscard]] Scopes some() {
    Scopes chosen;
    for (const auto& scope : all) {
      if (roll(2) == 0) chosen.push_back(scope);
    }
    return chosen;
  }
  [[nodiscard]] remote::ScopeId id_of(ScopeIndex index) const {
    for (const auto& followed : tree.scopes().all()) {
      if (followed.index == index) return followed.id;
    }
    return {};
  }
  void follow() {
    const auto chosen = some();
    const auto following = tree.follow(chosen);
    gone.insert(following.gone.begin(), following.gone.end());
    for (auto& [at, scopes] : model) {
      std::erase_if(scopes, [&](const auto& one) { return std::ranges::find(chosen, one.first) == chosen.end(); });
    }
  }
  void purge() {
    for (const auto index : std::exchange(gone, {})) {
      for (const auto& path : tree.paths().of_scope(index)) (void)tree.remove(index, path);
    }
  }
  void compare(const std::string& root) {
    const auto own = shown.contains(root) ? shown.find(root) : shown.find("");
    std::map<std::string, Names> listed;
    for (const auto& [at, scopes] : model) {
      const auto seen = std::ranges::find_if(scopes, [&](const auto& one) {
        return own == shown.end() || std::ranges::find(own->second, one.first) != own->second.end();
      });
      const auto found = tree.find({at, root});
      ASSERT_EQ(found.has_value(), seen != scopes.end()) << root << ": " << at;
      if (!found) continue;
      listed[at.substr(0, at.find('/'))].push_back(at.substr(at.find('/') + 1));
      ASSERT_EQ(found->scope, seen->first);
      ASSERT_EQ(found->entry.digest, codec::digest_of(seen->second));
    }
    Names directories;
    for (const auto& [directory, children] : listed) {
      directories.push_back(directory + "/");
      ASSERT_EQ(names(tree.list({directory, root})), children);
    }
    ASSERT_EQ(names(tree.list({"", root})), directories);
    for (const std::string directory : {"d0", "d1", "d2"}) {
      ASSERT_EQ(tree.has_directory({directory, root}), listed.contains(directory));
    }
  }

  static inline const Scopes all{"aa", "bb", "cc"};
  const std::vector<std::string> roots{"", "alice", "team/bob"};
  std::mt19937 random{11};
  std::map<std::string, std::map<remote::ScopeId, std::string>> model;
  std::map<std::string, Scopes> shown;
  std::set<ScopeIndex> gone;
};

/// Random sets, removals, followings, and choices of what a root shows.
TEST(Tree, AgreesWithAMapOfScopesAfterManyRandomChanges) {
  ModelledTree modelled;
  for (int round = 0; round < 20'000; ++round) {
    const std::string path = "d" + std::to_string(modelled.roll(3)) + "/" + std::to_string(modelled.roll(4));
    modelled.change(modelled.roll(100), path, std::to_string(modelled.roll(1'000)));
    if (round % 50 == 0) modelled.compare();
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(Tree, OneNameIsNeverFileAndDirectory) {
  EntryTree tree({"aa"}, 100);
  (void)tree.set(0, entry("a/f"));
  EXPECT_EQ(tree.set(0, entry("a")), EntryTree::Change::kRefused);
  EXPECT_EQ(tree.set(0, entry("a/f/g/h")), EntryTree::Change::kRefused);
  EXPECT_EQ(tree.set(0, entry("")), EntryTree::Change::kRefused);
  EXPECT_EQ(tree.known(), 1U);
  EXPECT_EQ(names(tree.list("a")), (Names{"f"}));
}

TEST(Tree, TheLimitRefusesNewNamesButNotNewBytes) {
  EntryTree tree({"aa"}, 2);
  (void)tree.set(0, entry("a"));
  (void)tree.set(0, entry("b"));
  EXPECT_EQ(tree.set(0, entry("deep/down/c")), EntryTree::Change::kRefused);
  EXPECT_FALSE(tree.has_directory("deep"));
  EXPECT_EQ(tree.set(0, entry("b", "new")), EntryTree::Change::kVisible);
}

TEST(Tree, HiddenEntriesCountNowhere) {
  EntryTree tree({"aa"}, 100);
  (void)tree.set(0, entry("d/f"));
  (void)tree.set(0, entry("d/g"));
  tree.mark_hidden("d/f", entry("d/f").digest);
  EXPECT_FALSE(tree.find("d/f"));
  EXPECT_TRUE(tree.find_known("aa", "d/f"));
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
  EntryTree tree({"aa"}, 100);
  (void)tree.set(0, entry("f"));
  tree.mark_hidden("f", entry("f").digest);
  (void)tree.remove(0, "f");
  EXPECT_EQ(tree.set(0, entry("f")), EntryTree::Change::kHidden);
  EXPECT_EQ(tree.set(0, entry("f", "new")), EntryTree::Change::kVisible);
  EXPECT_EQ(tree.set(0, entry("f")), EntryTree::Change::kVisible) << "what could be seen went";
  EXPECT_FALSE(tree.find("f"));
}

TEST(Tree, AMarkOfAPathThatIsDeletedOftenPushesTheOldestOut) {
  EntryTree tree({"aa"}, 100);
  const auto digest = [](int number) { return codec::digest_of(std::to_string(number)); };
  for (int i = 0; i < 8; ++i) EXPECT_FALSE(tree.mark_hidden("f", digest(i)));
  EXPECT_FALSE(tree.mark_hidden("f", digest(0))) << "deleted again: it counts as the latest";
  EXPECT_EQ(tree.mark_hidden("f", digest(8)), (HiddenMark{"f", digest(1)}));
  EXPECT_TRUE(tree.marks().contains("f", digest(0)));
  EXPECT_FALSE(tree.marks().contains("f", digest(1)));
}

TEST(Tree, TheTimeOfADirectoryChangesWithItsNames) {
  EntryTree tree({"aa"}, 100);
  (void)tree.set(0, entry("d/e/f", "bytes", 5'000));
  (void)tree.set(0, entry("d/g", "bytes", 3'000));
  EXPECT_EQ(tree.paths().names_changed("d"), 5'000) << "of what is loaded, the latest";
  EXPECT_EQ(tree.paths().names_changed("nowhere"), std::nullopt);
  tree.note_times();
  const auto above = tree.paths().names_changed("d");
  auto before = tree.paths().names_changed("d/e");
  const auto changes = [&] {
    const auto was = std::exchange(before, tree.paths().names_changed("d/e"));
    return was != before;
  };
  (void)tree.set(0, entry("d/e/older", "bytes", 1'000));
  EXPECT_TRUE(changes());
  (void)tree.set(0, entry("d/e/older", "other bytes"));
  EXPECT_FALSE(changes());
  tree.mark_hidden("d/e/older", entry("", "other bytes").digest);
  EXPECT_TRUE(changes());
  EXPECT_EQ(tree.paths().names_changed("d"), above);
  EXPECT_TRUE(tree.remove(0, "d/e/f"));
  EXPECT_NE(tree.paths().names_changed("d"), above) << "its directory shows nothing any more";
}

TEST(Tree, LostEntriesComeBackWhenTheyAreSetAgain) {
  EntryTree tree({"aa"}, 100);
  (void)tree.set(0, entry("f"));
  tree.mark_lost("f", codec::digest_of("not this"));
  EXPECT_TRUE(tree.find("f"));
  tree.mark_lost("f", entry("f").digest);
  EXPECT_FALSE(tree.find("f"));
  EXPECT_FALSE(tree.find_known("aa", "f"));
  EXPECT_EQ(tree.set(0, entry("f")), EntryTree::Change::kVisible);
  EXPECT_TRUE(tree.find("f"));
}

TEST(Tree, EntriesInADirectoryAreThoseDirectlyInIt) {
  EntryTree tree({"aa"}, 100);
  for (const char* path : {"d/a", "d/b", "d/sub/c", "e"}) (void)tree.set(0, entry(path));
  Names paths;
  for (const auto& known : tree.entries_in("d")) paths.push_back(known.entry.path);
  EXPECT_EQ(paths, (Names{"d/a", "d/b"}));
  EXPECT_EQ(tree.entries_in("").size(), 1U);
}

TEST(Tree, NewestFirstAndNoMoreThanAsked) {
  EntryTree tree({"aa"}, 100);
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
  EntryTree tree({"aa", "bb"}, 100);
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
  EntryTree tree({"aa"}, 100);
  tree.echoes().watch({"a", "b", "c"});
  (void)tree.set(0, entry("a"));
  (void)tree.remove(0, "b");
  (void)tree.set(0, entry("x"));
  const auto touched = tree.echoes().end_watch();
  EXPECT_EQ(touched.size(), 2U);
  EXPECT_TRUE(touched.contains("a") && touched.contains("b"));
  (void)tree.set(0, entry("c"));
  EXPECT_TRUE(tree.echoes().end_watch().empty());
}

/// Random operations against the plainest model there is: a map from path to (digest, hidden).
TEST(Tree, AgreesWithAMapAfterManyRandomChanges) {
  std::mt19937 random(7);
  EntryTree tree({"aa"}, 1'000);
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
        EXPECT_NE(tree.set(0, entry(path, bytes)), EntryTree::Change::kRefused);
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
