// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <array>

namespace inductorfs::supervisor {

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
