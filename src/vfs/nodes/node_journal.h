// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inductorfs/codec/entry.h"
#include "inductorfs/takeover/node_log.h"
#include "vfs/nodes/key_directory.h"
#include "vfs/nodes/node.h"

namespace inductorfs::vfs {

/// A node as an earlier worker left it.
struct LeftNode {
  uint64_t id = 0;
  mode_t type = 0;
  uint64_t inode_number = 0;
  uint64_t lookups = 0;
  uint64_t local_inode = 0;  ///< inode number on the local disk; 0: none was recorded
  Backing backing = Backing::kLocal;
  std::string elsewhere;
  codec::Entry entry;
  std::string group_directory;                             ///< of a group file that was rendered: for this directory
  std::string group_text;                                  ///< its bytes; empty: they are made from the blob
  std::map<std::string, catalog::KnownEntry> cluster_set;  ///< the cluster's set that a key directory shows
};

/// All that an earlier worker left: nodes by id, and their names.
struct LeftNodes {
  std::map<uint64_t, LeftNode> nodes;
  std::map<std::pair<uint64_t, std::string>, uint64_t> names;  ///< (parent, name) -> node
  uint64_t last_id = 0;
};

/// Writes the changes of the node table into the log that outlives this worker; without such a log it does nothing. The
/// log always has at least as many kernel references as there are: an answer that gives one may get lost, but never the
/// record of it. All but count() is called under the table's lock. Needs external synchronisation.
class NodeJournal {
 public:
  /// Several changes that are added in one step, when the batch is destroyed.
  class Batch {
   public:
    explicit Batch(NodeJournal& journal) : journal_(journal) {}
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;
    ~Batch();
    void node(const Node& node);
    void name(NodeId parent, std::string_view name, NodeId node);
    void no_name(NodeId parent, std::string_view name);
    void count(NodeId node, uint64_t references);
    void forget(NodeId node, uint64_t references);
    void gone(NodeId node);
    void local_inode(NodeId node, uint64_t number);
    void raw(std::string record);
    /// Returns the records so far, which are then not added.
    [[nodiscard]] std::vector<std::string> take() { return std::exchange(records_, {}); }

   private:
    NodeJournal& journal_;
    std::vector<std::string> records_;
  };

  explicit NodeJournal(const takeover::Region* region);
  [[nodiscard]] bool kept() const { return log_ != nullptr; }
  void set_last_id(uint64_t id);
  [[nodiscard]] bool wants_snapshot(size_t nodes) const;
  /// Starts the log anew with these nodes.
  void snapshot(const std::vector<NodePtr>& nodes);
  [[nodiscard]] LeftNodes read() const;

  // These make the records that a node carries along (Node::content_record, Node::key_record) for the next snapshot.
  [[nodiscard]] static std::string shared(NodeId node, const codec::Entry& entry);
  /// A group file of the cluster that shows `text`, rendered for `directory`. An empty text is made from the blob.
  [[nodiscard]] static std::string group(NodeId node, const codec::Entry& entry, std::string_view directory,
                                         std::string_view text);
  [[nodiscard]] static std::string local(NodeId node, std::string_view elsewhere);
  [[nodiscard]] static std::string virtual_directory(NodeId node);
  [[nodiscard]] static std::string cluster_set(NodeId node, const std::map<std::string, catalog::KnownEntry>& set);

 private:
  void append(const std::vector<std::string>& records);
  std::unique_ptr<takeover::NodeLog> log_;
};

}  // namespace inductorfs::vfs
