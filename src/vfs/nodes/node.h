// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/codec/entry.h"
#include "inductorfs/vfs/types.h"
#include "vfs/nodes/key_directory.h"
#include "vfs/nodes/provenance.h"

namespace inductorfs::vfs {

/// Where a node's bytes or children are.
enum class Backing {
  kLocal,    ///< in view/ under its path, or under Content::elsewhere (pending/, orphans/)
  kShared,   ///< a regular file whose bytes are a blob of the store
  kVirtual,  ///< a directory that is there only because entries lie below it
};

struct Node;

/// The bytes and attributes of a node. Guarded by the node's own lock, which may be held while its bytes are copied.
struct Content {
  Backing backing = Backing::kLocal;
  std::string elsewhere;  ///< kLocal: path below the file system's directory when it is not in view/
  Attributes attributes;
  bool attributes_valid = false;
  /// Of a directory: when names of the cluster came to it or went, as far as this node knows (since 1970).
  std::chrono::nanoseconds names_changed{0};
  bool copying = false;  ///< a thread is copying the bytes before it takes this lock (EarlyCopy)
  // kLocal regular files
  uint64_t active_writes = 0;
  uint64_t version = 0;     ///< counts changes of the bytes
  bool unfinished = false;  ///< written in place, and a process may still have it open for writing (InPlace)
  SteadyTime last_change{};
  pid_t last_writer = 0;           ///< the thread whose process was last examined as a writer
  std::optional<uid_t> last_user;  ///< who was last looked at as one of the file's makers (makers.h)
  /// For a file under a final name: what this worker learned of its writers. nullptr: its marks on the disk tell.
  std::shared_ptr<const Provenance> provenance;
  // kShared
  codec::Entry entry;
  std::shared_ptr<const std::string> rendered;  ///< bytes that differ from the blob (a group file for one view)
  std::string group_directory;                  ///< of such a group file: the directory that its text names
  std::shared_ptr<Node> view_of;  ///< of a node without a name (GroupViews): the node that has the name, pinned
};

/// The items that a listing of a directory goes through. The cookie of an item is the hash of its name, so that a
/// listing may go on after anything was created or removed (rm -rf does exactly that), and after another worker has
/// taken the mount over.
struct Listing {
  struct Item {
    std::string name;
    uint64_t inode_number = 0;
    mode_t type = 0;
  };
  std::map<uint64_t, Item> by_cookie;
  bool known = false;
  std::string made_for;  ///< where programs see different names: the branches that are listed

  /// Returns where the name was in the last listing; end() of by_cookie when it was not there.
  [[nodiscard]] std::map<uint64_t, Item>::const_iterator find(std::string_view name) const;
};

/// One inode that the kernel, or a background thread, knows.
///
/// `lookups` counts the kernel's references, `pins` those of background threads. A node leaves the table when both are
/// zero and it has no known children. The table's lock guards `names`, `children` and the records.
struct Node {
  Node(NodeId node_id, mode_t file_type, uint64_t number) : id(node_id), type(file_type), inode_number(number) {}

  const NodeId id;
  const mode_t type;  ///< S_IFMT bits
  const uint64_t inode_number;
  std::atomic<uint64_t> lookups{0};
  std::atomic<uint32_t> pins{0};
  /// The owner of the local file when its attributes were last read; the seal queue uses it to let users take turns.
  mutable std::atomic<uid_t> owner{0};
  /// Of a directory: the time of the cluster's names in it that the kernel was told last (ShownAttributes::of).
  mutable std::atomic<int64_t> told_change{0};

  std::vector<std::pair<NodeId, std::string>> names;  ///< every link; a directory has one; empty: the node was deleted
  std::map<std::string, NodeId, std::less<>> children;
  // Records for the next worker (NodeJournal), as the table last wrote them; the table's lock guards them too.
  std::string content_record;  ///< empty: a local file or directory at its path
  std::string key_record;
  uint64_t local_inode = 0;
  std::vector<std::string> shown;  ///< candidate directories: entries that the last listing showed

  Guarded<Content> content;
  Guarded<Listing> listing;
  std::unique_ptr<KeyDirectory>
      key;  ///< set at creation, for directories that are, or may become, Triton key directories

  [[nodiscard]] bool is_directory() const { return type == S_IFDIR; }
  [[nodiscard]] bool is_regular() const { return type == S_IFREG; }
};
using NodePtr = std::shared_ptr<Node>;

/// Notes that a directory shows another name of the cluster, or one less: of that the disk keeps no time.
inline void note_change(const NodePtr& directory) {
  directory->content.with(
      [](Content& content) { content.names_changed = std::chrono::system_clock::now().time_since_epoch(); });
}

/// Notes that a name of the file, or in the directory, came or went. The disk has changed the times of one that it has.
inline void changed_names_in(const NodePtr& node) {
  const bool is_on_disk = node->content.with([](Content& content) {
    content.attributes_valid = content.attributes_valid && content.backing != Backing::kLocal;
    return content.backing == Backing::kLocal;
  });
  if (!is_on_disk && node->is_directory()) note_change(node);
}

/// Uses the contents of two nodes at once. It locks them in the order of their ids; `second` may be nullptr, or the
/// same as `first`. While a name is removed or moved, on the disk and then in the table, no other thread may ask where
/// the node's bytes are.
template <typename F>
decltype(auto) with_contents(const NodePtr& first, const NodePtr& second, F&& use) {
  if (!second || second == first) {
    return first->content.with([&](Content& content) { return use(content, static_cast<Content*>(nullptr)); });
  }
  if (first->id < second->id) {
    return first->content.with(
        [&](Content& a) { return second->content.with([&](Content& b) { return use(a, &b); }); });
  }
  return second->content.with([&](Content& b) { return first->content.with([&](Content& a) { return use(a, &b); }); });
}

}  // namespace inductorfs::vfs
