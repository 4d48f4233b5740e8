// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "vfs/nodes/notifier.h"
#include "vfs/origin/origin.h"
#include "vfs/tree/context.h"
#include "vfs/write/removal.h"

namespace inductorfs::vfs {

/// Removes files that were made for other facts than this host's, and those that an operator purges. The facts may
/// change between two mounts, or during one. Files that the cluster is still to get stay in the store until it has
/// them. Blocks on the local disk only. Safe for concurrent use.
class Stale : Context {
 public:
  explicit Stale(const Context& context) : Context(context) {}

  /// Removes everything stale in this directory of the view and below it, while requests are served.
  void drop_stale_below(const std::string& path);
  /// Removes every sealed file of the view that is selected, and the Triton set that it belongs to, while requests are
  /// served. Returns how many files went; nothing if `cancelled` ended the walk.
  [[nodiscard]] std::optional<uint64_t> purge(const layout::Selection& selection,
                                              const std::function<bool()>& cancelled);
  /// Removes every file that is marked as damaged (Damage), under whatever name, and the Triton set that it belongs to,
  /// and these parcels, while requests are served.
  void drop_damaged(const std::set<std::string>& parcels, const std::function<bool()>& cancelled);

  // ---- before the first request
  /// Pins what an earlier process kept for the cluster.
  void recover_stale();
  /// Says whether a file of the view fits this host's current facts and may be sealed. Removes it when it is stale.
  [[nodiscard]] bool recover_provenance(const std::string& path);
  /// Does the same for a Triton set.
  [[nodiscard]] bool recover_set(const std::string& path, std::vector<std::string> names);

 private:
  /// A walk of the view that removes files.
  struct Removing {
    /// Of files in one directory: a Triton set, or one file. All of them go when it answers true.
    std::function<bool(const std::vector<std::string>& paths)> goes;
    Counter& gone;
    std::function<bool()> cancelled{};  ///< asked before each file and directory; empty: the walk goes to its end
    bool private_too = false;           ///< files of families that are not shared
    bool directory_too = false;         ///< and the directory in the same step: one without its files would be seen
  };
  [[nodiscard]] bool is_selected(const std::string& path, const layout::Selection& selection) const;
  void drop_below(const std::string& path, const Removing& removing);
  [[nodiscard]] bool is_stale(const std::string& path, const std::vector<std::string>& scopes) const;
  void drop_parcel(const std::string& directory, const std::string& name, const Removing& removing);
  [[nodiscard]] std::vector<std::string> files_of(const std::string& path) const;
  void drop(const std::string& directory, std::vector<std::string> names, const Removing& removing);
  void keep_what_is_queued(const std::string& path);
};

}  // namespace inductorfs::vfs
