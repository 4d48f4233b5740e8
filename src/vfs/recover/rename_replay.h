// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "vfs/read/context.h"
#include "vfs/recover/node_places.h"
#include "vfs/write/key_sets.h"
#include "vfs/write/removal.h"
#include "vfs/write/renames.h"

namespace inductorfs::vfs {

/// Finishes a rename request that comes again because the worker that served it was killed, if the effect of the rename
/// is on the disk already. Safe for concurrent use.
class RenameReplay : Context {
 public:
  explicit RenameReplay(const Context& context) : Context(context) {}

  /// Finishes the rename. Empty when the effect is not there; the rename is then done like any other. Only to be called
  /// when takeover::begun_effect() says so.
  [[nodiscard]] std::optional<Result<void>> run(const Site& from, const Site& to, RenameMode mode,
                                                const Caller& caller);

 private:
  [[nodiscard]] std::optional<Result<void>> finish_in_set(const Site& from, const Site& to, const Caller& caller);
  [[nodiscard]] Result<bool> finish_rename(const Site& from, const Site& to, RenameMode mode, uint64_t witness);
  void finish_move(const Site& from, const Site& to, const NodePtr& moved);
  void finish_exchange(const Site& from, const Site& to, const NodePtr& moved);
};

}  // namespace inductorfs::vfs
