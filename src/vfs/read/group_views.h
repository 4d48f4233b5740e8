// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "vfs/nodes/notifier.h"
#include "vfs/tree/context.h"

namespace inductorfs::vfs {

/// Shows each process the text of a Triton group file, or of vLLM's index, in which the paths are those that the
/// process sees: a container has the mount at a path of its own (FileSystemOptions::where_seen), and Triton takes the
/// whole group for a miss when one of its absolute paths does not exist there (triton/runtime/cache.py: get_group).
///
/// The kernel keeps names and pages for all processes alike. Therefore the first process that looks a group file up
/// gets the file's node, rendered for its view, and the kernel keeps the name. A process with another view gets a node
/// without a name, which has the text for that view. From then on the kernel may not keep the group files of this key
/// directory, and it is made to forget those that it has (GroupNames).
///
/// vLLM's index names absolute paths too, and the engine ends when one is not there. Of one that came from the cluster
/// the disk has the text for the mountpoint, and the kernel keeps no name of it: each lookup is answered for its
/// process. What a process writes into its own text becomes the index (Data::begin_write).
///
/// Triton makes the key directory before it reads a group (os.makedirs in FileCacheManager.__init__), which is a
/// request whatever the kernel keeps. That is when meet() notices another view. Safe for concurrent use.
class GroupViews : Context {
 public:
  /// Nodes without a name that are found again, so that the kernel need not drop one for the next.
  static constexpr size_t kMostRemembered = 4096;

  explicit GroupViews(const Context& context) : Context(context) {}

  /// Returns the absolute path at which a thread (Caller::pid) sees a path of the mount.
  [[nodiscard]] std::string seen_by(pid_t thread, const std::string& path) const;
  /// Returns the absolute path at which the daemon's own mount table has a path of the mount.
  [[nodiscard]] std::string path_in_mount(std::string_view path) const;
  /// Marks the group files among these files of a key directory, which lie at `place` below the file system's
  /// directory, with the path at which their writer sees `key_directory`, if they name another one (it is reached by a
  /// symbolic link).
  void mark_view(const std::string& place, const std::vector<std::string>& names, const std::string& key_directory,
                 pid_t writer) const;
  /// Handles the lookup of a known key directory at this path. If the kernel keeps group files there that are rendered
  /// for another view than the caller's, waits until the kernel has given their nodes back, at most
  /// FileSystemOptions::forget_wait: it
  /// forgets their names at once, and keeps the node of a file that a process has open. Blocks for nothing else but the
  /// local disk.
  void meet(const NodePtr& key_directory, const std::string& path, const Caller& caller);
  /// Changes the answer to the lookup of a group file into that for the caller, who sees the directory at `site.seen`.
  [[nodiscard]] LookupAnswer for_view(const Site& site, LookupAnswer answer);
  /// The same for an index.
  [[nodiscard]] LookupAnswer for_index(const Site& site, LookupAnswer answer);
  /// Notes that the kernel may keep this group file, which an earlier worker has shown.
  void kept_before(const Node& group_file);

 private:
  using Key = std::tuple<NodeId, std::string, std::string>;  ///< key directory, name, view

  [[nodiscard]] Result<std::string> text_of(const NodePtr& node);
  [[nodiscard]] std::string directory_of(const NodePtr& node, const std::string& key);
  [[nodiscard]] bool are_kept_for(const NodePtr& key_directory, const std::string& path, const std::string& seen);
  [[nodiscard]] bool may_keep(const Site& site);
  void forget_groups(const NodePtr& key_directory, bool waits);
  [[nodiscard]] Result<Found> other_view(const Site& site, const NodePtr& node, const Attributes& attributes);
  [[nodiscard]] Found view_with(const Site& site, const NodePtr& node, const std::string& canonical, std::string text,
                                const Attributes& attributes);
  [[nodiscard]] NodePtr new_view(const Site& site, const NodePtr& node, const std::string& canonical, std::string text,
                                 const Attributes& attributes);

  Guarded<std::map<Key, std::weak_ptr<Node>>> known_;
};

}  // namespace inductorfs::vfs
