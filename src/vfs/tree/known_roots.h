// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/layout/layout.h"
#include "inductorfs/vfs/file_system.h"
#include "vfs/disk/local_tree.h"
#include "vfs/nodes/node_table.h"

namespace inductorfs::vfs {

/// Which directories are cache roots (layout::Name): the mountpoint, and those of which a name was asked for, a bounded
/// number of each owner. It tells who may do what in a root, and where in the roots the kernel may know an entry.
/// Blocks on the local disk only. Safe for concurrent use.
class KnownRoots {
 public:
  static constexpr size_t kMost = 1024;
  static constexpr size_t kMostOfOne = 512;

  /// All must outlive this object.
  KnownRoots(const FileSystemOptions& options, const LocalTree& disk, const NodeTable& nodes)
      : options_(options), disk_(disk), nodes_(nodes) {}

  /// Notes that this name is about to be asked for. Where there are kMost other roots with known names already, or
  /// kMostOfOne of the same owner, the one that was idle longest goes. Returns false when none was idle: nobody
  /// would tell the kernel what changes there, so such a root shows nothing of the cluster meanwhile.
  [[nodiscard]] bool admit(const layout::Name& entry);
  /// Returns the roots that went, since the last call. The kernel is to forget their names: it is told of no change.
  [[nodiscard]] std::vector<std::string> take_left();
  /// Notes that a directory has moved with the roots in it.
  void move(const std::string& from, const std::string& to);
  /// The same for two directories that have changed places.
  void exchange(const std::string& one, const std::string& other);

  /// Returns the roots with known names, below the mountpoint, which is always one.
  [[nodiscard]] std::vector<std::string> paths() const;
  /// Says whether the path is one of paths(), or leads to one.
  [[nodiscard]] bool has_any_at(const std::string& path) const;
  /// Says whether a directory of this name shows by itself what the cluster has there. Otherwise it shows the names
  /// that somebody has looked up. So does an ambiguous name in a root that nothing has proved to be torch's: a program
  /// that unpacks a tree of its own must not find directories there that nobody has made.
  [[nodiscard]] bool lists_cluster(const layout::Name& entry) const;
  /// Says what lists_cluster() will say when the name is asked for, which makes its directory a root.
  [[nodiscard]] bool will_list_cluster(const layout::Name& entry) const;

  /// Returns who may do what in the cache root of this name. Empty when the local disk does not tell.
  [[nodiscard]] std::optional<RootAccess> access_of(const layout::Name& entry) const;
  /// Returns whose the names of the cluster are in this root, and the mode of their directories.
  [[nodiscard]] RootAccess access_of_entries(const layout::Name& entry) const;
  /// Returns who owns the directory of a root; nothing when it has gone.
  [[nodiscard]] std::optional<uid_t> owner_of(const std::string& root) const;

  /// Returns the names in the view that an entry of the cluster has: in each root where the kernel may know it, one for
  /// each Triton device that is used there. Of a name in a root below the mountpoint, those in that root.
  [[nodiscard]] std::vector<std::string> local_paths_of(const layout::Name& entry) const;
  /// Calls `use` for each Triton key directory that is known.
  void each_key_directory(const std::function<void(const NodePtr&)>& use) const;

 private:
  struct Root {
    uid_t owner = 0;
    bool is_torchs = false;
    mutable SteadyTime used{};  ///< written as an atomic, by those who only read the rest
  };
  struct Roots {
    std::map<std::string, Root> known;
    std::vector<std::string> left;  ///< until take_left()
    SteadyTime next_prune{};        ///< while there are too many
    [[nodiscard]] bool is_full(uid_t owner) const;
  };

  [[nodiscard]] static std::map<std::string, Root> take_below(Roots& roots, const std::string& directory);
  [[nodiscard]] static bool let_idle_go(Roots& roots, uid_t owner);
  [[nodiscard]] bool insert(Roots& roots, const layout::Name& entry, uid_t owner, bool is_torchs);
  [[nodiscard]] bool is_torchs_on_disk(const std::string& root) const;
  [[nodiscard]] std::vector<std::string> local_paths_in_root(const layout::Name& entry) const;

  const FileSystemOptions& options_;
  const LocalTree& disk_;
  const NodeTable& nodes_;
  SharedGuarded<Roots> roots_;
};

}  // namespace inductorfs::vfs
