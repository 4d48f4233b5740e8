// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

#include "inductorfs/base/clock.h"

namespace inductorfs::mount {

/// The messenger of a worker whose supervisor and messenger were killed. Without one the worker would tell the kernel
/// itself, which may hold it up for as long as a job waits for an answer; killed in that moment it would not die, and
/// nobody would answer the job (supervisor/messenger.h). What the one before had not told yet is lost.
/// Needs external synchronisation.
class OwnMessenger {
 public:
  /// `device` and `notices` stay the caller's: /dev/fuse, and the socket that notices are sent to.
  OwnMessenger(int device, int notices, std::string mountpoint)
      : device_(device), notices_(notices), mountpoint_(std::move(mountpoint)) {}
  /// Puts a new process behind `notices`. False when none can be started: there is no room, or no program,
  /// or the last one did not live for a second.
  [[nodiscard]] bool renew();

 private:
  int device_;
  int notices_;
  std::string mountpoint_;
  pid_t pid_ = -1;
  SteadyTime renewed_{};
};

}  // namespace inductorfs::mount
