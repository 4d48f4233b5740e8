// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "inductorfs/base/guarded.h"
#include "vfs/read/cluster_sets.h"
#include "vfs/read/shown_names.h"
#include "vfs/tree/context.h"

namespace inductorfs::vfs {

/// Makes one step of each of two: "if it is still there, queue it" and "it is gone, so hide what is queued".
struct Queueing {};

/// Removes names: from the disk and the table in one step, so that a process that has the file open reads on, and from
/// the cluster's entries that this mount shows. Deleting, renaming and merging use it. Blocks on the local disk only.
/// Safe for concurrent use.
class Removal : Context {
 public:
  explicit Removal(const Context& context) : Context(context) {}

  /// A caller holds this lock while it queues something, so that the name is not hidden in between. It is taken after a
  /// content's lock, and before the node table's.
  [[nodiscard]] Guarded<Queueing>& queueing() { return queueing_; }

  /// Hides the cluster's entry of a name that was deleted here, at this path, and what is queued under it. The other
  /// files of a Triton set are hidden with it; in this very directory they stay until each has been deleted.
  void hide_entry(const std::string& path);
  /// Shows again what was deleted in the roots at and below a directory that has gone.
  void forget_root(const std::string& path);
  /// Opens a directory that is about to move, for hide_moved(). Empty when it cannot be read. The caller holds moves().
  [[nodiscard]] Fd open_moving(const std::string& path) const;
  /// Hides the entries that a renamed directory took with it; `directory` has gone from `from` to `to`. The walk may
  /// take long: the caller holds no lock.
  void hide_moved(const std::string& from, const std::string& to, const Fd& directory);
  /// The same for the directory or file that is at `to` now.
  void hide_moved(const std::string& from, const std::string& to);
  /// Removes the name from the disk and the table. `content` is the node's, locked; nullptr without a node. The caller
  /// holds moves().
  [[nodiscard]] Result<void> take_name_away(const Site& site, const NodePtr& node, Content* content);

  /// Gives the file of `node` a second name if it is in use; called before its name goes. The caller holds moves().
  [[nodiscard]] Result<void> keep_orphan(const Site& site, const NodePtr& node);
  /// Takes that back where the name did not go.
  void keep_no_orphan(const NodePtr& node);
  /// Notes, after a name went, whether it was the last one that is known. Whether it was the last of all only the disk
  /// knows (ShownAttributes::of()).
  void orphaned(const Node& node, Content& content, bool has_file);

  /// Says whether rmdir(2) may remove the directory. The caller holds moves().
  [[nodiscard]] bool directory_is_empty(const NodePtr& directory, const std::string& path) const;

 private:
  void hide_below(const std::string& from, const Fd& directory, const std::string& below);
  [[nodiscard]] Result<void> remove_first_name(const std::string& view_path, const NodePtr& node, Content* content,
                                               Result<void> kept);

  Guarded<Queueing> queueing_;
};

}  // namespace inductorfs::vfs
