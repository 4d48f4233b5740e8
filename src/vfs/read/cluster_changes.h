// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "vfs/nodes/notifier.h"
#include "vfs/read/cluster_sets.h"
#include "vfs/tree/context.h"

namespace inductorfs::vfs {

/// Follows the catalog: names appear, change and go behind the kernel's back, and this class tells the kernel to forget
/// them. Safe for concurrent use.
class ClusterChanges : Context {
 public:
  explicit ClusterChanges(const Context& context) : Context(context) {}

  /// FileSystem::on_catalog_change. The catalog's threads call it, and it blocks until the Notifier has room.
  void on_catalog_change(const std::vector<std::string>& canonical_paths);
  /// The same for one root (RootScopes). Never blocks on the kernel, which may wait for the caller's request.
  void on_shown(const std::string& root, const std::vector<std::string>& canonical_paths);
  /// Applies the change of one name.
  void apply(const std::string& path);
  /// Takes away every name that shows this blob of the store, which has gone: the next lookup fetches it again. Who has
  /// one open reads on as far as the descriptor is kept.
  void drop_shown(const codec::Digest& digest);

 private:
  [[nodiscard]] std::vector<Notifier::Notice> notices_of(
      const std::vector<std::string>& canonical_paths,
      const std::function<std::vector<std::string>(const std::string&)>& local_paths_of);
  /// Adds what the kernel is to be told; returns the directory whose listing has changed.
  NodeId change(const std::string& path, std::vector<Notifier::Notice>& notices);
  /// What a batch of changes touches: what the kernel is told once of each.
  struct Touched {
    std::set<NodeId> directories;
    std::set<std::string> paths;  ///< of directories
  };
  void forget_emptied(const std::string& directory, std::vector<Notifier::Notice>& notices) const;
  void tell_times(const std::string& path, Touched& touched) const;
};

}  // namespace inductorfs::vfs
