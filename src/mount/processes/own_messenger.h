// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include "inductorfs/base/clock.h"

namespace inductorfs::mount {

/// The messenger of a worker whose supervisor and messenger were killed. Without one the worker would tell the kernel
/// itself, which may block for as long as a job waits for an answer; a worker that is killed in that moment would not
/// die, and nobody would answer the job (supervisor/messenger.h). Notices that the earlier messenger had not yet
/// delivered are lost. Needs external synchronisation.
class OwnMessenger {
 public:
  /// `device` (/dev/fuse) and `notices` (the socket that notices are sent to) stay the caller's.
  OwnMessenger(int device, int notices) : device_(device), notices_(notices) {}
  /// Starts a messenger that reads `notices`. Returns false when none can be started: there is no room, or the last one
  /// did not live for a second.
  [[nodiscard]] bool renew();

 private:
  int device_;
  int notices_;
  pid_t pid_ = -1;
  SteadyTime renewed_{};
};

}  // namespace inductorfs::mount
