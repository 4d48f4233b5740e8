// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <array>
#include <optional>

namespace inductorfs::supervisor {

/// The wait status of a child that has ended but for threads that nobody waits for (kLooseThread) and that the kernel
/// does not let go: they are in the hands of a file system that has taken a request and does not answer it. Such a
/// process cannot be reaped until it does. Empty for every other process, and where /proc does not tell.
[[nodiscard]] std::optional<int> status_of_remains(pid_t child);

/// Children that are reaped when they can be. Needs external synchronisation.
class Remains {
 public:
  void add(pid_t child);
  void reap();

 private:
  /// More than these stay zombies until this process ends, which is no harm.
  std::array<pid_t, 16> children_{};
};

}  // namespace inductorfs::supervisor
