// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
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
#include "vfs/tree/common_access.h"

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
  /// catalog::Catalog::names_changed()
  using NamesChanged = std::function<std::optional<int64_t>(const layout::Name&)>;
  /// `options` and `store` must outlive this object.
  RootTree(const FileSystemOptions& options, LocalTree disk, NodePtr root, store::BlobStore& store,
           NamesChanged names_changed);

  [[nodiscard]] LocalTree& disk() { return disk_; }
  [[nodiscard]] NodeTable& nodes() { return nodes_; }
  [[nodiscard]] const NodeTable& nodes() const { return nodes_; }
  [[nodiscard]] const NodePtr& root() const { return root_; }
  [[nodiscard]] DescriptorCache& descriptors() { return descriptors_; }
  [[nodiscard]] SharedGuarded<Moves>& moves() { return moves_; }
  [[nodiscard]] Guarded<Pins>& pins() { return pins_; }
  [[nodiscard]] Guarded<Orphans>& orphans() { return orphans_; }

  // ---- names and nodes (root_tree.cc)
  /// Finds a node by the kernel's id. kNotFound when the table does not have it.
  [[nodiscard]] Result<NodePtr> live(NodeId id) const;
  /// Resolves a name in a directory. kNameTooLong, kNotDirectory, or kNotFound when the directory has no path any more.
  [[nodiscard]] Result<Site> site(const Moves& moves, NodeId parent, std::string_view name) const;
  /// The same with the lock taken for the call alone: where the name was.
  [[nodiscard]] Result<Site> site_now(NodeId parent, std::string_view name) const;
  /// Says whether the name still has the path that it had.
  [[nodiscard]] bool is_at(const Moves& moves, const Site& site) const;
  /// Returns the names in the view that an entry of the cluster has: in each root where the kernel may know it, one for
  /// each Triton device that is used there. With a root, those in that root.
  [[nodiscard]] std::vector<std::string> local_paths_of(const std::string& canonical) const;
  [[nodiscard]] std::vector<std::string> local_paths_of(const layout::Name& entry) const;
  /// Notes that this name is about to be asked for. Where there are kMostRoots other roots with known names already, or
  /// kMostRootsOfOne of the same owner, the one that was idle longest goes. Returns false when none was idle: nobody
  /// would tell the kernel what changes there, so such a root shows nothing of the cluster meanwhile.
  [[nodiscard]] bool admit(const layout::Name& entry);
  /// Returns the roots that went, since the last call. The kernel is to forget their names: it is told of no change.
  [[nodiscard]] std::vector<std::string> take_left_roots();
  static constexpr size_t kMostRoots = 1024;
  static constexpr size_t kMostRootsOfOne = 512;
  /// Says whether a directory of this name shows by itself what the cluster has there. Otherwise it shows the names
  /// that somebody has looked up. So does an ambiguous name in a root that nothing has proved to be torch's: a program
  /// that unpacks a tree of its own must not find directories there that nobody has made.
  [[nodiscard]] bool lists_cluster(const layout::Name& entry) const;
  /// Says what lists_cluster() will say when the name is asked for, which makes its directory a root.
  [[nodiscard]] bool will_list_cluster(const layout::Name& entry) const;
  /// Returns the roots with known names, below the mountpoint, which is always one.
  [[nodiscard]] std::vector<std::string> roots() const;
  /// Returns who owns the directory of a root; nothing when it has gone.
  [[nodiscard]] std::optional<uid_t> owner_of(const std::string& root) const;
  /// Says whether the path is one of roots(), or leads to one.
  [[nodiscard]] bool has_roots_at(const std::string& path) const;
  /// Notes that a directory has moved with the roots in it.
  void move_roots(const std::string& from, const std::string& to);
  /// The same for two directories that have changed places.
  void exchange_roots(const std::string& one, const std::string& other);
  /// Calls `use` for each Triton key directory that is known.
  void each_key_directory(const std::function<void(const NodePtr&)>& use) const;
  /// Makes a node that is not in the table yet.
  [[nodiscard]] NodePtr new_node(mode_t type, uint64_t inode_number, const Site& site);
  void make_key_directory(Node& node, const std::string& path);
  /// Removes `count` of the kernel's references.
  void forget(NodeId node, uint64_t count);
  /// Waits until the kernel has no reference to any of these nodes; returns whether it has none.
  [[nodiscard]] bool wait_until_forgotten(const std::vector<NodePtr>& nodes, Deadline deadline);
  /// Returns the absolute path at which a thread (Caller::pid) sees a path of the mount.
  [[nodiscard]] std::string seen_by(pid_t thread, const std::string& path) const;
  /// Returns the absolute path at which the daemon's own mount table has a path of the mount.
  [[nodiscard]] std::string path_in_mount(std::string_view path) const;
  /// Marks the group files among these files of a key directory, which lie at `place` below the file system's
  /// directory, with the path at which their writer sees `key_directory`, if they name another one (it is reached by a
  /// symbolic link).
  void mark_view(const std::string& place, const std::vector<std::string>& names, const std::string& key_directory,
                 pid_t writer) const;
  /// Removes a pin.
  void unpin(const NodePtr& node);
  /// Gives back what nodes held that have left the table: descriptors, pins, and the files of deleted names.
  void let_go(const std::vector<NodePtr>& gone);

  // ---- where a node's bytes are (root_tree.cc)
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

  // ---- attributes (root_tree.cc)
  /// Returns what the kernel is shown: the file's own attributes, widened for what torch and Triton share
  /// (vfs/tree/common_access.h). The times of a directory are those of its names, the cluster's too: who keeps a
  /// listing (importlib's FileFinder) looks at them.
  [[nodiscard]] Result<Attributes> attributes(const Node& node, Content& content);
  /// Returns who may do what in the cache root of this name. Empty when the local disk does not tell.
  [[nodiscard]] std::optional<RootAccess> access_of_root(const layout::Name& entry) const;
  /// FileSystem::newest_own(), without the bytes.
  [[nodiscard]] std::optional<OwnFile> newest_own(const std::string& directory, int depth,
                                                  const std::string& name) const;
  /// FileSystem::lets_in()
  [[nodiscard]] bool lets_in(std::string_view path, uid_t user, std::span<const gid_t> groups) const;
  /// Remembers, after a chmod of an artefact or its directory, that the mode was chosen and is not the umask's: it is
  /// shown as it is.
  void keep_mode(const Node& node, Content& content);
  void set_entry_attributes(const Node& node, Content& content, const layout::Name& entry) const;
  void set_virtual_attributes(const Node& node, Content& content, const layout::Name& entry) const;

  // ---- files of the local disk and of the store (root_files.cc)
  /// Returns the path of the node's file, below the file system's directory.
  [[nodiscard]] Result<std::string> location(const Node& node, const Content& content) const;
  [[nodiscard]] Result<DescriptorCache::Pointer> descriptor(const Node& node, Content& content, bool writable);
  /// Says whether the store may share the file's inode, so that nobody may write to it: the inode tells, each time.
  [[nodiscard]] bool is_sealed(const Node& node, const Content& content);
  /// Before the store takes the inode of this open file of the node: from here on a writer gets an inode of its own.
  /// Requires: the content's lock, and no active write.
  [[nodiscard]] Result<void> seal(const Node& node, int file);
  /// Returns the digest in the seal of a file of the view, or in the mark of a parcel; empty when it has none.
  [[nodiscard]] Result<std::string> read_seal(const std::string& path) const;
  [[nodiscard]] std::string seal_on_disk(const std::string& path) const;
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
  /// Lists the Triton files that a directory of the view has on the disk, of its first kMostInSet names.
  [[nodiscard]] std::vector<std::string> kernel_files(const std::string& path) const;
  /// Lists those of them that are a set: the group files and what they name. With more than kMostInSet names it is no
  /// whole set. read_set() says so where the disk does not tell it all.
  [[nodiscard]] std::vector<std::string> local_set(const std::string& path) const;
  [[nodiscard]] Result<std::vector<std::string>> read_set(const std::string& path) const;
  /// Lists what a commit that was cut may have moved here already, of a set without a group file.
  [[nodiscard]] std::vector<std::string> cut_set(const std::string& path) const;
  [[nodiscard]] Result<bool> local_set_is_whole(const std::string& path) const;
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
  /// Returns whose the names of the cluster are in this root, and the mode of their directories.
  [[nodiscard]] RootAccess access_of_entries(const layout::Name& entry) const;
  [[nodiscard]] Result<Attributes> own_attributes(const Node& node, Content& content);
  void show_change(const Node& node, Content& content, const std::string& path, Attributes& shown) const;
  [[nodiscard]] bool mode_is_chosen(const Node& node, const Content& content) const;
  void end(const Node& node, const Content& content);
  void unpin_set(const Node& directory);

  const FileSystemOptions& options_;
  LocalTree disk_;
  store::BlobStore& store_;
  const NamesChanged names_changed_;
  std::function<void(NodeId)> listed_more_;
  NodePtr root_;
  NodeTable nodes_;
  DescriptorCache descriptors_;
  SharedGuarded<Moves> moves_;
  struct Root {
    uid_t owner = 0;
    bool is_torchs = false;
    mutable SteadyTime used{};  ///< written as an atomic, by those who only read the rest
  };
  struct Roots {
    std::map<std::string, Root> known;
    std::vector<std::string> left;  ///< until take_left_roots()
    SteadyTime next_prune{};        ///< while there are too many
    [[nodiscard]] bool is_full(uid_t owner) const;
  };
  [[nodiscard]] static std::map<std::string, Root> take_roots(Roots& roots, const std::string& directory);
  [[nodiscard]] static bool let_idle_root_go(Roots& roots, uid_t owner);
  [[nodiscard]] bool insert_root(Roots& roots, const layout::Name& entry, uid_t owner, bool is_torchs);
  [[nodiscard]] bool is_torchs_on_disk(const std::string& root) const;
  SharedGuarded<Roots> roots_;
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
