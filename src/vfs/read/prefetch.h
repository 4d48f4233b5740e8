// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "inductorfs/base/clock.h"
#include "vfs/read/fetcher.h"
#include "vfs/read/starts.h"
#include "vfs/tree/context.h"

namespace inductorfs::vfs {

/// Guesses what will be asked for next, and has it fetched in the background. Never blocks; does nothing when
/// FileSystemOptions::prefetch_bytes is 0. Safe for concurrent use.
class Prefetch : Context {
 public:
  /// All must outlive this object.
  explicit Prefetch(const Context& context) : Context(context) {}

  /// Fetches the entries of a directory in which a name was looked up, and what belongs to one that is not here.
  void directory(const layout::Name& directory);
  /// A program has asked for this name, whose bytes are not here: fetches what an earlier start of the same job asked
  /// for (Starts). The caller has the name's own bytes fetched first.
  void beside(const layout::Name& asked);
  /// Has the next newest_wanted() fetch the newest entries of all: after the mount, and when a root has taken up an
  /// environment.
  void want_newest() { wants_newest_ = true; }
  /// Says whether newest_wanted() has still something to do.
  [[nodiscard]] bool waits() const { return options_.prefetch_bytes != 0 && wants_newest_; }
  /// Fetches them, if that is wanted and the catalog has them. The janitor calls it.
  void newest_wanted();

 private:
  void newest();

  std::atomic<bool> wants_newest_{true};
  SteadyTime next_newest_{};  ///< the janitor's
};

}  // namespace inductorfs::vfs
