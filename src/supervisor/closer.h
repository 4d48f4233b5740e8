// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <array>
#include <span>

#include "inductorfs/base/fd.h"

namespace inductorfs::supervisor {

/// Closes what a worker has sent. The last close of a descriptor may wait for as long as somebody likes (a connection
/// with SO_LINGER), so a child has it, for which nobody waits. Needs external synchronisation.
class Closer {
 public:
  /// Leaves nothing in `descriptors`. False: too many children close already; these stay open, and whoever has sent
  /// them is to send no more. Blocks for a tenth of a second at most.
  [[nodiscard]] bool close(std::span<Fd> descriptors);

 private:
  [[nodiscard]] pid_t* free_place();

  std::array<pid_t, 16> children_{};
};

}  // namespace inductorfs::supervisor
