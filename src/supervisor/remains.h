// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <array>
#include <optional>

namespace inductorfs::supervisor {

/// Returns the wait status of a child that has ended except for threads that nobody waits for (kLooseThread) and that
/// the kernel does not let go, because a file system has taken a request of theirs and does not answer it. Such a
/// process cannot be reaped until the file system answers. Empty for every other process, and when /proc does not tell.
[[nodiscard]] std::optional<int> status_of_remains(pid_t child);

/// Children that are to be reaped when that is possible. Needs external synchronisation.
class Remains {
 public:
  void add(pid_t child);
  void reap();

 private:
  /// Children beyond this number stay zombies until this process ends, which does no harm.
  std::array<pid_t, 16> children_{};
};

}  // namespace inductorfs::supervisor
