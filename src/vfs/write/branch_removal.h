// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "vfs/nodes/notifier.h"
#include "vfs/read/branches.h"
#include "vfs/read/cluster_changes.h"
#include "vfs/read/root_scopes.h"
#include "vfs/read/shown_names.h"
#include "vfs/tree/context.h"
#include "vfs/write/names.h"
#include "vfs/write/removal.h"

namespace inductorfs::vfs {

/// Removes branches (Branches) with all that is in them, and tells the kernel. What cannot be removed stays, and is met
/// again. A user removes what is his, and the superuser what is anybody's. Blocks on the
/// local disk; the caller holds no lock. Safe for concurrent use.
class BranchRemoval : Context {
 public:
  explicit BranchRemoval(const Context& context) : Context(context) {}

  /// Before the rmdir(2) of a directory: what environments have for it goes if the caller sees nothing there. In a root
  /// that is so when `caller` has had something there; in a directory below one only for a program without an
  /// environment (`is_for_all`), or when nobody has anything there.
  void prepare(const std::string& directory, bool is_for_all, const Caller& caller);
  /// After a program without an environment of its own has removed a name: nobody has it there any more, nor is shown
  /// what the cluster has for him.
  void remove_name(const std::string& directory, std::string_view name, const Caller& caller);
  /// Removes the empty directories of a layout that are in no branch, from an earlier mount that learned no
  /// environments. Before there are requests.
  void remove_empty_common() { (void)remove_empty_common({}, 0); }
  /// Removes the branches of all known roots that nobody has used for kUnused, while a root has too many.
  void remove_unused();
  static constexpr std::chrono::hours kUnused{24};

 private:
  /// For whom something goes: nobody when it is the mount itself that needs room.
  struct Remover {
    std::optional<uid_t> user;
    [[nodiscard]] bool may_remove(uid_t owner) const { return !user || *user == 0 || *user == owner; }
  };
  [[nodiscard]] bool is_free(const std::string& directory, bool branches_count) const;
  [[nodiscard]] bool remove_empty_common(const std::string& directory, int depth);
  [[nodiscard]] bool may_remove(const std::string& path, const Remover& remover) const;
  void hide(const std::string& path);
  void remove(const std::string& path, const Remover& remover);
};

}  // namespace inductorfs::vfs
