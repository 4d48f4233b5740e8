// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vfs/origin/origin.h"
#include "vfs/read/context.h"
#include "vfs/read/root_scopes.h"
#include "vfs/write/data.h"
#include "vfs/write/key_sets.h"
#include "vfs/write/removal.h"
#include "vfs/write/sealing.h"

namespace inductorfs::vfs {

/// Renames, as FileSystem does. A rename is the sign of completeness in most families, and the way in which Triton puts
/// files into its sets. The rename of a directory holds moves() exclusively, but not while it walks the tree below.
/// Blocks on the local disk only. Safe for concurrent use.
class Renames : Context {
 public:
  explicit Renames(const Context& context) : Context(context) {}

  /// False: a directory above one of the names was moved before the lock was taken. Nothing was done; to be called
  /// again with what is true now.
  [[nodiscard]] Result<bool> rename(const Site& from, const Site& to, RenameMode mode, const Caller& caller);
  /// Does what follows a rename that an earlier worker had done on the disk.
  void follow_up(const Site& from, const Site& to, const Caller& caller);

 private:
  [[nodiscard]] bool are_there(const Moves& moves, const Site& from, const Site& to) const {
    return tree_.is_at(moves, from) && tree_.is_at(moves, to);
  }
  [[nodiscard]] Result<bool> rename_one(const Site& from, const Site& to, const NodePtr& node, RenameMode mode,
                                        const Caller& caller);
  /// One rename, decided under the lock of directory moves.
  struct Step {
    const Moves& moves;
    const Site& from;
    const Site& to;
    RenameMode mode;
    const Caller& caller;
  };
  [[nodiscard]] Result<void> rename_file(const Step& step, const NodePtr& node, EarlyCopy& early);
  [[nodiscard]] Result<void> note_namer(const Site& from, const Site& to, const Caller& caller);
  [[nodiscard]] Result<void> check_new_path(const NodePtr& node, const std::string& from, const std::string& to);
  [[nodiscard]] Result<Fd> rename_directory(const Step& step, const NodePtr& node);
  void note_groups_moved(const NodePtr& directory, const std::string& path);
  [[nodiscard]] Result<bool> exchange(const Site& from, const Site& to, const Caller& caller);
};

}  // namespace inductorfs::vfs
