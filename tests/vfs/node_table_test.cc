// SPDX-License-Identifier: Apache-2.0
#include "vfs/nodes/node_table.h"

#include <gtest/gtest.h>

#include <thread>

#include "inductorfs/takeover/node_log.h"

namespace inductorfs::testing {
namespace {

using vfs::NodePtr;

class NodeTable : public ::testing::Test {
 protected:
  NodePtr make(mode_t type = S_IFREG) {
    ++number;
    return std::make_shared<vfs::Node>(table.next_id(), type, number);
  }
  NodePtr add(const NodePtr& parent, const std::string& name, mode_t type = S_IFREG) {
    return table.add(parent, name, make(type), 1);
  }

  uint64_t number = 100;
  NodePtr root = std::make_shared<vfs::Node>(vfs::kRootNode, S_IFDIR, 1);
  vfs::NodeTable table{root};
};

TEST_F(NodeTable, KnowsThePathOfANodeThroughMoves) {
  const auto a = add(root, "a", S_IFDIR);
  const auto b = add(a, "b", S_IFDIR);
  const auto file = add(b, "file");
  EXPECT_EQ(table.path_of(*file), "a/b/file");
  EXPECT_EQ(table.path_of(*b, "other"), "a/b/other");
  EXPECT_EQ(table.path_of(*root), "");

  EXPECT_FALSE(table.move(a, "b", root, "c"));

  EXPECT_EQ(table.path_of(*file), "c/file");
  EXPECT_EQ(table.walk("c/file").node, file);
  EXPECT_EQ(table.walk("a/b/file").missing, "b");
}

TEST_F(NodeTable, AnswersTheFirstNodeWhenTwoFindOnePendingFile) {
  const auto first = make();
  EXPECT_EQ(table.add_unnamed(first, 1, 7), first);
  EXPECT_EQ(table.add_unnamed(make(), 1, 7), first);
  EXPECT_EQ(first->lookups.load(), 2U);
  EXPECT_EQ(table.find_local(7), first);
  (void)table.forget(first->id, 2);
  const auto later = make();
  EXPECT_EQ(table.add_unnamed(later, 1, 7), later) << "the first one has left the table";
}

TEST_F(NodeTable, TakesTheNameFromNoOtherNodeThanTheOneThatIsMeant) {
  const auto first = add(root, "name");
  (void)table.detach(root, "name");
  const auto second = add(root, "name");
  EXPECT_FALSE(table.detach(root, "name", first));
  EXPECT_EQ(table.child(root, "name"), second);
  EXPECT_EQ(table.detach(root, "name", second), second);
}

TEST_F(NodeTable, AnswersTheFirstNodeWhenTwoLookUpOneName) {
  const auto first = make();
  const auto second = make();
  EXPECT_EQ(table.add(root, "name", first, 1), first);
  EXPECT_EQ(table.add(root, "name", second, 1), first);
  EXPECT_EQ(first->lookups.load(), 2U);
  EXPECT_FALSE(table.find(second->id));
}

TEST_F(NodeTable, GivesTwoNamesOfOneFileOneNodeWhenTwoLookThemUpAtOnce) {
  const vfs::NodeTable::LocalFile file{4711, true};
  const auto first = make();
  const auto second = make();
  EXPECT_EQ(table.add(root, "one", first, 1, file), first);
  EXPECT_EQ(table.add(root, "two", second, 1, file), first);
  EXPECT_EQ(table.links_of(first), 2U);
  EXPECT_EQ(table.find_local(4711), first);
  EXPECT_FALSE(table.find(second->id));

  const vfs::NodeTable::LocalFile another{4711, false};  // the number was given to a new file
  const auto third = make();
  EXPECT_EQ(table.add(root, "three", third, 1, another), third);
  EXPECT_EQ(table.find_local(4711), third);
}

TEST_F(NodeTable, ForgetsTheInodeOfACopyWithItsNode) {
  const auto file = add(root, "f");
  table.remember_local(4711, file);
  EXPECT_EQ(table.forget(file->id, 1).size(), 1U);
  EXPECT_FALSE(table.find_local(4711));
}

TEST_F(NodeTable, KeepsAParentWhileAChildIsKnown) {
  const auto directory = add(root, "d", S_IFDIR);
  const auto file = add(directory, "f");
  EXPECT_TRUE(table.forget(directory->id, 1).empty());
  EXPECT_TRUE(table.find(directory->id));

  const auto gone = table.forget(file->id, 1);

  EXPECT_EQ(gone.size(), 2U);
  EXPECT_EQ(table.size(), 1U);
  EXPECT_FALSE(table.child(root, "d"));
}

TEST_F(NodeTable, CountsReferencesExactly) {
  const auto file = add(root, "f");
  EXPECT_EQ(table.look_up_child(root, "f"), file);
  EXPECT_TRUE(table.forget(file->id, 1).empty());
  EXPECT_EQ(table.forget(file->id, 1).size(), 1U);
  EXPECT_TRUE(table.forget(file->id, 1).empty()) << "a forget of what is forgotten does nothing";
}

TEST_F(NodeTable, KeepsAPinnedNode) {
  const auto file = add(root, "f");
  file->pins.fetch_add(1);
  EXPECT_TRUE(table.forget(file->id, 1).empty());
  file->pins.fetch_sub(1);
  EXPECT_EQ(table.release(file).size(), 1U);
}

TEST_F(NodeTable, KeepsADetachedNodeUntilItIsForgotten) {
  const auto file = add(root, "f");
  EXPECT_EQ(table.detach(root, "f"), file);
  EXPECT_FALSE(table.path_of(*file));
  EXPECT_EQ(table.find(file->id), file);
  EXPECT_FALSE(table.detach(root, "f"));
  const auto other = add(root, "f");
  EXPECT_NE(other, file);
  EXPECT_EQ(table.forget(file->id, 1).size(), 1U);
  EXPECT_EQ(table.child(root, "f"), other) << "the name is another node's by now";
}

TEST_F(NodeTable, ReplacesWithAMove) {
  const auto from = add(root, "from");
  const auto to = add(root, "to");
  EXPECT_EQ(table.move(root, "from", root, "to"), to);
  EXPECT_EQ(table.child(root, "to"), from);
  EXPECT_FALSE(table.child(root, "from"));
  EXPECT_FALSE(table.path_of(*to));
}

TEST_F(NodeTable, ExchangesTwoNames) {
  const auto directory = add(root, "d", S_IFDIR);
  const auto inside = add(directory, "inside");
  const auto file = add(root, "f");
  table.exchange(root, "d", root, "f");
  EXPECT_EQ(table.path_of(*inside), "f/inside");
  EXPECT_EQ(table.path_of(*file), "d");
}

TEST_F(NodeTable, FollowsALinkByItsOtherName) {
  const auto file = add(root, "one");
  EXPECT_EQ(table.add(root, "two", file, 1), file);
  EXPECT_EQ(table.links_of(file), 2U);
  (void)table.detach(root, "one");
  EXPECT_EQ(table.path_of(*file), "two");
}

TEST_F(NodeTable, RemembersLocalInodesWhileTheirNodesLive) {
  const auto file = add(root, "f");
  table.remember_local(file->inode_number, file);
  table.remember_local(777, file);  // after a copy on write it has another one
  EXPECT_EQ(table.find_local(777), file);
  (void)table.forget(file->id, 1);
  EXPECT_FALSE(table.find_local(file->inode_number));
}

/// The log of nodes outlives the worker, and so does what it grows to.
class NodeTableLog : public NodeTable {
 protected:
  static constexpr size_t kMost = 3 << 19;  ///< a floor of 1 MiB and the change that goes beyond it
  [[nodiscard]] size_t bytes() const { return takeover::NodeLog(region).bytes(); }

  takeover::Region region = std::move(*takeover::Region::create(1));
  vfs::NodeTable noted{root, &region};
};

TEST_F(NodeTableLog, StaysShortHoweverOftenANameIsLookedUp) {
  const auto directory = noted.add(root, "d", std::make_shared<vfs::Node>(noted.next_id(), S_IFDIR, 5), 1);
  for (int i = 0; i < 200'000; ++i) ASSERT_TRUE(noted.look_up_child(root, "d"));
  EXPECT_LE(bytes(), kMost);
  EXPECT_EQ(noted.left_over().nodes.at(static_cast<uint64_t>(directory->id)).lookups, 200'001U);
}

TEST_F(NodeTableLog, StaysShortHoweverOftenANodeIsChanged) {
  const auto file = noted.add(root, "a", std::make_shared<vfs::Node>(noted.next_id(), S_IFREG, 5), 1);
  for (int i = 0; i < 40'000; ++i) {
    (void)noted.move(root, i % 2 == 0 ? "a" : "b", root, i % 2 == 0 ? "b" : "a");
    noted.remember_local(static_cast<uint64_t>(i), file);
    noted.note_content(*file, vfs::NodeJournal::local(file->id, "orphans/1"));
  }
  EXPECT_LE(bytes(), kMost);
  const auto left = noted.left_over();
  EXPECT_EQ(left.names.size(), 1U);
  EXPECT_EQ(left.nodes.at(static_cast<uint64_t>(file->id)).local_inode, 39'999U);
}

TEST_F(NodeTable, HoldsItsOrderUnderThreads) {
  std::vector<std::thread> threads;
  const auto directory = add(root, "d", S_IFDIR);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) {
        const std::string name = "n" + std::to_string((i + t) % 5);
        auto node = table.look_up_child(directory, name);
        if (!node) node = table.add(directory, name, std::make_shared<vfs::Node>(table.next_id(), S_IFREG, 9), 1);
        (void)table.path_of(*node);
        if (i % 7 == 0) (void)table.detach(directory, name);
        (void)table.forget(node->id, 1);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(table.size(), 2U);
  EXPECT_TRUE(table.children(directory).empty());
}

}  // namespace
}  // namespace inductorfs::testing
