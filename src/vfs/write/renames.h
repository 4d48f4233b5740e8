// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "vfs/origin/origin.h"
#include "vfs/read/root_scopes.h"
#include "vfs/tree/context.h"
#include "vfs/write/data.h"
#include "vfs/write/key_sets.h"
#include "vfs/write/removal.h"
#include "vfs/write/sealing.h"

namespace inductorfs::vfs {

/// Renames. A rename is the sign of completeness in most families, and the way in which Triton puts
/// files into its sets. The rename of a directory holds moves() exclusively, but not while it walks the tree below.
/// Blocks on the local disk only. Safe for concurrent use.
class Renames : Context {
 public:
  explicit Renames(const Context& context) : Context(context) {}

  /// False: a directory above one of the names was moved before the lock was taken. Nothing was done; to be called
  /// again with what is true now.
  [[nodiscard]] Result<bool> rename(const Site& from, const Site& to, RenameMode mode, const Caller& caller);
  /// Finishes a rename that comes again because the worker that served it was killed (rename_replay.cc). Empty when the
  /// disk has no effect of it; it is then done like any other.
  [[nodiscard]] std::optional<Result<void>> finish_begun(const Site& from, const Site& to, RenameMode mode,
                                                         const Caller& caller);

 private:
  void follow_up(const Site& from, const Site& to, const Caller& caller);
  [[nodiscard]] std::optional<Result<void>> finish_in_set(const Site& from, const Site& to, const Caller& caller);
  [[nodiscard]] Result<bool> finish_rename(const Site& from, const Site& to, RenameMode mode, uint64_t witness);
  void finish_move(const Site& from, const Site& to, const NodePtr& moved);
  void finish_exchange(const Site& from, const Site& to, const NodePtr& moved);
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
