// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/layout/layout.h"
#include "inductorfs/store/blob_store.h"
#include "inductorfs/vfs/file_system.h"
#include "vfs/disk/local_tree.h"
#include "vfs/nodes/descriptor_cache.h"
#include "vfs/nodes/node_table.h"
#include "vfs/nodes/tree_state.h"
#include "vfs/tree/known_roots.h"

namespace inductorfs::vfs {

/// A name in a directory, with the paths that it stands for as long as the lock is held under which it was made. Later
/// the paths tell only where it was: whoever takes the lock again makes it again, or asks RootTree::is_at().
struct Site {
  NodePtr parent;
  std::string name;
  std::string path;       ///< relative to the mount
  layout::Name entry;     ///< the entry of the cluster that may stand behind the name
  std::string seen;       ///< in the lookup of a group file: the directory as the asking process sees it
  bool as_it_is = false;  ///< the process has to meet the group file itself (FileSystemOptions::where_seen)
};

/// Notes that a request has given a file this name. If it is a group file, the kernel keeps it without a lookup
/// (GroupNames).
void note_named(const Site& site);

/// The state that all other classes of this module work on: the nodes that the kernel knows, the local directory below
/// them, and how the two belong together. It knows nothing of the cluster, of fetching or of sealing. A mount has one,
/// for all its cache roots (layout::Name): their paths keep them apart.
///
/// Lock order: moves(), a set's directory (KeyDirectory), the content of a node (of two nodes: by id), the node table,
/// pins() and orphans(). Functions that take a Content& require its lock; functions that resolve a path on the disk
/// require moves(), at least shared. Calls block on the local disk only. Safe for concurrent use.
class RootTree {
 public:
  /// `options` and `store` must outlive this object.
  RootTree(const FileSystemOptions& options, LocalTree disk, NodePtr root, store::BlobStore& store);

  [[nodiscard]] LocalTree& disk() { return disk_; }
  [[nodiscard]] NodeTable& nodes() { return nodes_; }
  [[nodiscard]] const NodeTable& nodes() const { return nodes_; }
  [[nodiscard]] const NodePtr& root() const { return root_; }
  [[nodiscard]] KnownRoots& known_roots() { return known_roots_; }
  [[nodiscard]] DescriptorCache& descriptors() { return descriptors_; }
  [[nodiscard]] SharedGuarded<Moves>& moves() { return moves_; }
  [[nodiscard]] Guarded<Pins>& pins() { return pins_; }
  [[nodiscard]] Guarded<Orphans>& orphans() { return orphans_; }

  // ---- names and nodes
  /// Finds a node by the kernel's id. kNotFound when the table does not have it.
  [[nodiscard]] Result<NodePtr> live(NodeId id) const;
  /// Resolves a name in a directory. kNameTooLong, kNotDirectory, or kNotFound when the directory has no path any more.
  [[nodiscard]] Result<Site> site(const Moves& moves, NodeId parent, std::string_view name) const;
  /// The same with the lock taken for the call alone: where the name was.
  [[nodiscard]] Result<Site> site_now(NodeId parent, std::string_view name) const;
  /// Says whether the name still has the path that it had.
  [[nodiscard]] bool is_at(const Moves& moves, const Site& site) const;
  /// Makes a node that is not in the table yet.
  [[nodiscard]] NodePtr new_node(mode_t type, uint64_t inode_number, const Site& site);
  void make_key_directory(Node& node, const std::string& path);
  /// Removes `count` of the kernel's references.
  void forget(NodeId node, uint64_t count);
  /// Waits until the kernel has no reference to any of these nodes; returns whether it has none.
  [[nodiscard]] bool wait_until_forgotten(const std::vector<NodePtr>& nodes, Deadline deadline);
  /// Removes a pin.
  void unpin(const NodePtr& node);
  /// Gives back what nodes held that have left the table: descriptors, pins, and the files of deleted names.
  void let_go(const std::vector<NodePtr>& gone);

  // ---- where a node's bytes are
  /// Sets where the file is from now on; `elsewhere` is empty for its path in the view.
  void become(const NodePtr& node, Content& content, Backing backing, std::string elsewhere);
  void become_orphan(const Node& node, Content& content, std::string place);
  /// Puts an orphan back at a name. A node becomes an orphan when its last known name goes; this is called when the
  /// disk has a further name for its file, which was just found or made. The file is at that name again, and the
  /// orphan's own name goes.
  void named_again(const NodePtr& node);
  /// Makes a directory in the view, and those above it, as the directories of the cluster are shown in its root.
  [[nodiscard]] Result<void> make_view_directories(const std::string& path);
  /// Makes a directory on the disk for one that is there only because entries lie below it.
  [[nodiscard]] Result<void> make_local_directory(const Moves& moves, const NodePtr& directory);

  /// Sets who is told of a directory that lists more since a name in it got onto the disk.
  void on_listed_more(std::function<void(NodeId)> listed_more) { listed_more_ = std::move(listed_more); }

  // ---- files of the local disk and of the store
  /// Returns the path of the node's file, below the file system's directory.
  [[nodiscard]] Result<std::string> location(const Node& node, const Content& content) const;
  [[nodiscard]] Result<DescriptorCache::Pointer> descriptor(const Node& node, Content& content, bool writable);
  /// Says whether the store may share the file's inode, so that nobody may write to it: the inode tells, each time.
  [[nodiscard]] bool is_sealed(const Node& node, const Content& content);
  /// Before the store takes the inode of this open file of the node: from here on a writer gets an inode of its own.
  /// Requires: the content's lock, and no active write.
  [[nodiscard]] Result<void> seal(const Node& node, int file);
  /// Lists what a directory of the view has on the disk; nothing when it is not there. The caller must not hold
  /// moves(): the directory is opened under it, and read with no lock held, however many names it has.
  [[nodiscard]] Result<std::vector<LocalTree::Item>> list_in_view(const std::string& path);
  [[nodiscard]] Result<std::vector<LocalTree::Item>> list_in_view(const Node& directory);
  /// Says whether this host has something in a directory of the view: names on the disk, or a pending set, whose files
  /// lie elsewhere. That has to hold the directory, because Triton removes it, and then its parents, after every put
  /// (os.removedirs).
  [[nodiscard]] bool has_something(const std::string& path) const;
  /// Removes a directory of the view, unless it has something (kNotEmpty): the one way in which a directory goes. One
  /// that is not on the disk leaves the table only. The caller holds moves().
  [[nodiscard]] Result<void> remove_directory(const std::string& path);
  /// Evicts after an ENOSPC, and waits up to 100 ms for the space of files that were deleted just now. Returns true if
  /// another try may find room. The caller must hold no lock.
  [[nodiscard]] bool make_room(uint64_t bytes);
  /// Attempts a change, and once more when it found no space and make_room() found some for a copy that is made under
  /// locks (EarlyCopy::kLarge) or a name. The caller must hold no lock.
  template <typename Attempt>
  [[nodiscard]] auto with_room(const Attempt& attempt) {
    constexpr uint64_t kRoomForAChange = uint64_t{256} << 10;
    auto result = attempt();
    if (result || result.error().code() != ErrorCode::kNoSpace || !make_room(kRoomForAChange)) return result;
    return attempt();
  }

 private:
  void end(const Node& node, const Content& content);
  void unpin_set(const Node& directory);

  LocalTree disk_;
  store::BlobStore& store_;
  std::function<void(NodeId)> listed_more_;
  NodePtr root_;
  NodeTable nodes_;
  KnownRoots known_roots_;
  DescriptorCache descriptors_;
  SharedGuarded<Moves> moves_;
  Guarded<Pins> pins_;
  Guarded<Orphans> orphans_;
  std::atomic<size_t> waiting_{0};  ///< threads in wait_until_forgotten()
  Guarded<uint64_t> forgotten_;     ///< counts calls of forget() while threads wait for them
};

/// Returns the st_ino of a path without a local file. It is below 2^63, because programs keep such numbers in signed
/// integers, and equals none of the local disk's, which do not have the bit below the sign.
[[nodiscard]] uint64_t inode_number_of(std::string_view path);
/// Returns the directory that holds the files of a writer's pending set.
[[nodiscard]] std::string pending_path(const Node& directory, const SetOwner& writer);

}  // namespace inductorfs::vfs
