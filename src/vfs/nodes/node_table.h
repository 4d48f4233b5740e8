// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "inductorfs/base/guarded.h"
#include "inductorfs/codec/digest.h"
#include "vfs/nodes/node.h"
#include "vfs/nodes/node_journal.h"

namespace inductorfs::vfs {

/// All nodes of a mount, their names and the tree between them. It is in memory only, and each change is recorded in
/// the journal in the same step. Its lock is the innermost one, and is never held across a system call (the journal
/// makes one in some thousand changes). Safe for concurrent use.
class NodeTable {
 public:
  explicit NodeTable(NodePtr root, const takeover::Region* region = nullptr);

  /// Returns what an earlier worker left in the journal.
  [[nodiscard]] LeftNodes left_over() const { return journal_.read(); }
  /// Enters nodes and names as they were left, but no inode numbers of the local disk, which may have given those to
  /// other files since. Must be called before anything else is added.
  void restore(const LeftNodes& records, const std::vector<NodePtr>& nodes);
  /// These record where a node's bytes are, or what its key directory shows, for the next worker (NodeJournal's
  /// records).
  void note_content(const Node& node, std::string record);
  void note_key(const Node& node, std::string record);

  [[nodiscard]] NodePtr find(NodeId id) const;
  [[nodiscard]] NodePtr child(const NodePtr& parent, std::string_view name) const;
  /// Finds a child as child() does, and counts one kernel reference.
  [[nodiscard]] NodePtr look_up_child(const NodePtr& parent, std::string_view name);
  /// Returns the path from the root without a leading slash ("" for the root); empty when the node no longer has a
  /// name.
  [[nodiscard]] std::optional<std::string> path_of(const Node& node) const;
  [[nodiscard]] std::optional<std::string> path_of(const Node& parent, std::string_view name) const;

  [[nodiscard]] std::vector<std::pair<NodeId, std::string>> names_of(const NodePtr& node) const;
  /// Returns how many names of the node are known. The file may have more names on the disk: those that were not looked
  /// up since the mount began, or since the kernel forgot the file.
  [[nodiscard]] size_t links_of(const NodePtr& node) const;

  /// A regular file of the local disk. If the file has several names, the node that already has its inode gets each of
  /// them: two nodes for one file would be two page caches in the kernel.
  struct LocalFile {
    uint64_t inode_number = 0;
    bool has_more_names = false;
  };
  /// Links a node as `name`, unless another node has that name already; returns the node that has it. A node that is
  /// not in the table enters it. Counts `references` kernel references on the node that is returned.
  NodePtr add(const NodePtr& parent, std::string_view name, NodePtr node, uint64_t references,
              const std::optional<LocalFile>& file = std::nullopt);
  /// Enters a node that has no name in the tree. Of a pending file, which has this inode, another node may be known:
  /// returns the one that is.
  NodePtr add_unnamed(NodePtr node, uint64_t references, std::optional<uint64_t> inode_number = std::nullopt);
  /// Counts one kernel reference on a node, unless it has left the table; returns whether it is there.
  [[nodiscard]] bool count_known(const NodePtr& node);
  /// Removes the name and returns its node, which stays in the table until it is forgotten or released. With `only`, if
  /// that is the node still: whoever looked before may otherwise take the name from a later one.
  NodePtr detach(const NodePtr& parent, std::string_view name, const NodePtr& only = nullptr);
  /// Moves a name; returns the node that had the new name before.
  NodePtr move(const NodePtr& parent, std::string_view name, const NodePtr& new_parent, std::string_view new_name);
  void exchange(const NodePtr& a_parent, std::string_view a, const NodePtr& b_parent, std::string_view b);

  /// forget() and release() return the nodes that left the table (parents may go with their last child): what those
  /// hold on the disk and in the store is to be given back.
  [[nodiscard]] std::vector<NodePtr> forget(NodeId id, uint64_t count);
  /// Removes a node whose last pin was released, unless something else needs it.
  [[nodiscard]] std::vector<NodePtr> release(const NodePtr& node);
  [[nodiscard]] NodeId next_id();
  [[nodiscard]] size_t size() const;

  /// The result of following a path as far as its nodes are known: the deepest known node, and the first unknown
  /// component (empty when all are known).
  struct Walk {
    NodePtr node;
    std::string missing;
    NodePtr parent;    ///< of `node`
    std::string name;  ///< of `node`
  };
  [[nodiscard]] Walk walk(std::string_view path) const;
  /// Returns the node of a path; nullptr when one of its names is not known.
  [[nodiscard]] NodePtr find(std::string_view path) const;
  /// Returns the known children of a directory.
  [[nodiscard]] std::vector<std::pair<std::string, NodePtr>> children(const NodePtr& parent) const;

  /// These find regular local files by inode number of the local disk: two links of a file must be one node.
  [[nodiscard]] NodePtr find_local(uint64_t inode_number) const;
  void remember_local(uint64_t inode_number, const NodePtr& node);

  /// These keep the candidate entries that the last listing of a directory showed.
  void set_shown(const NodePtr& directory, std::vector<std::string> names);
  [[nodiscard]] std::vector<std::string> shown(const NodePtr& directory) const;

 private:
  struct State {
    std::unordered_map<uint64_t, NodePtr> nodes;
    std::unordered_map<uint64_t, std::weak_ptr<Node>> local;
    uint64_t last_id = static_cast<uint64_t>(kRootNode);
  };
  static NodePtr at(const State& state, NodeId id);
  void enter(State& state, NodeJournal::Batch& batch, const NodePtr& node) const;
  template <typename Change>
  auto change(Change&& make);
  void compact(State& state);
  static void let_go(State& state, NodeJournal::Batch& batch, const NodePtr& node, std::vector<NodePtr>& gone);

  NodePtr root_;
  mutable NodeJournal journal_;
  SharedGuarded<State> state_;
};

}  // namespace inductorfs::vfs
