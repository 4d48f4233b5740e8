// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "catalog/tree/entry_tree.h"

/// What is not shown, and why.

namespace inductorfs::catalog {
namespace {

codec::Entry entry(const std::string& path, const std::string& bytes = "bytes") {
  return {path, codec::digest_of(bytes), bytes.size(), 0644, 0, "host/mount"};
}

using Names = std::vector<std::string>;

TEST(Tree, WhatThisHostCannotUseIsOutOfSightWithItsReasonUntilTheMarksGo) {
  EntryTree tree({"aa"}, 100);
  (void)tree.set(0, entry("d/f"));
  (void)tree.set(0, entry("g"));
  tree.mark_unfit("d/f", codec::digest_of("other bytes"), "no reason");
  EXPECT_TRUE(tree.find("d/f"));
  tree.mark_unfit("d/f", entry("d/f").digest, "needs libx.so");
  EXPECT_FALSE(tree.find("d/f"));
  EXPECT_FALSE(tree.has_directory("d"));
  EXPECT_EQ(tree.visible(), 1U);
  EXPECT_EQ(tree.why_unfit("d/f"), "needs libx.so");
  EXPECT_EQ(tree.why_unfit("g"), "");
  EXPECT_EQ(tree.marks().paths(), 0U) << "these are deletions";
  // As a snapshot does that says nothing new, and a log that takes it away and brings it again.
  EXPECT_EQ(tree.set(0, entry("d/f")), EntryTree::Change::kNone);
  (void)tree.remove(0, "d/f");
  EXPECT_EQ(tree.why_unfit("d/f"), "");
  EXPECT_EQ(tree.set(0, entry("d/f")), EntryTree::Change::kHidden);
  EXPECT_EQ(tree.why_unfit("d/f"), "needs libx.so");
  EXPECT_EQ(tree.set(0, entry("d/f", "new")), EntryTree::Change::kVisible);
  EXPECT_EQ(tree.why_unfit("d/f"), "");
  EXPECT_EQ(tree.set(0, entry("d/f")), EntryTree::Change::kVisible) << "what could be seen went";
  EXPECT_EQ(tree.unmark_unfit(), (Names{"d/f"}));
  EXPECT_TRUE(tree.find("d/f"));
  EXPECT_EQ(tree.visible(), 2U);
  EXPECT_TRUE(tree.unmark_unfit().empty());
}

TEST(Tree, SaysWhyNothingIsThere) {
  EntryTree tree({"aa", "bb"}, 100);
  (void)tree.show("alice", {"aa"});
  const std::string key = "fxgraph/bb/f" + std::string(51, 'b');
  const std::string candidate = key + "/" + std::string(51, 'c');
  const auto why = [&](const std::string& path, const std::string& root = {}) { return tree.why_absent({path, root}); };
  EXPECT_EQ(why(key), Absence::kNever);
  (void)tree.set(1, entry(candidate));
  EXPECT_EQ(why(key, "alice"), Absence::kNever) << "another scope's";
  tree.mark_unfit(candidate, entry(candidate).digest, "needs libx.so");
  EXPECT_EQ(why(key), Absence::kUnfit);
  EXPECT_EQ(tree.why_unfit(key), "needs libx.so");
  tree.mark_lost(candidate, entry(candidate).digest);
  EXPECT_EQ(why(key), Absence::kLost);
  (void)tree.remove(1, candidate);
  EXPECT_EQ(why(key), Absence::kRemoved) << "asked for by its key";
  EXPECT_EQ(why(key, "alice"), Absence::kNever);
  (void)tree.set(0, entry("f"));
  (void)tree.mark_hidden("alice/f", entry("f").digest);
  EXPECT_EQ(why("f", "alice"), Absence::kDeleted) << "in this root alone";
  (void)tree.follow({"bb"});
  (void)tree.remove(0, "f");
  EXPECT_EQ(why("f"), Absence::kNever) << "it went because its scope is not followed any more";
}

TEST(Tree, RemembersABoundedNumberOfWhatWasRemoved) {
  EntryTree tree({"aa"}, 100);
  for (int i = 0; i <= 65'536; ++i) {
    (void)tree.set(0, entry("d/" + std::to_string(i)));
    (void)tree.remove(0, "d/" + std::to_string(i));
  }
  EXPECT_EQ(tree.why_absent({"d/0", ""}), Absence::kNever) << "the oldest";
  EXPECT_EQ(tree.why_absent({"d/1", ""}), Absence::kRemoved);
}

TEST(Tree, AMarkForThisHostKeepsOneDigestOfAPathAndHoldsBehindAnotherScope) {
  EntryTree tree({"aa", "bb"}, 100);
  (void)tree.set(0, entry("f", "first"));
  (void)tree.set(1, entry("f", "second"));
  tree.mark_unfit("f", entry("f", "second").digest, "of the one behind");
  EXPECT_TRUE(tree.find("f"));
  EXPECT_EQ(tree.why_unfit("f"), "");
  (void)tree.remove(0, "f");
  EXPECT_FALSE(tree.find("f"));
  EXPECT_EQ(tree.why_unfit("f"), "of the one behind");
  (void)tree.set(1, entry("f", "third"));
  tree.mark_unfit("f", entry("f", "third").digest, "the later one");
  EXPECT_EQ(tree.why_unfit("f"), "the later one");
  (void)tree.set(1, entry("f", "second"));
  EXPECT_TRUE(tree.find("f")) << "looked at anew";
  EXPECT_TRUE(tree.unmark_unfit().empty()) << "nothing that was out of sight comes back";
}

}  // namespace
}  // namespace inductorfs::catalog
