// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include "core.h"
#include "inductorfs/base/fd.h"
#include "remains.h"

/// The system calls of a supervisor: signals, and the worker as a process.
namespace inductorfs::supervisor {

[[nodiscard]] Time now();
/// Keeps a descriptor out of the numbers that a worker expects things at.
[[nodiscard]] Fd out_of_the_way(Fd fd);

/// SIGTERM, SIGINT, SIGHUP and SIGCHLD as a descriptor. Needs external synchronisation.
class Signals {
 public:
  /// Blocks them. A worker inherits that, so that none is lost before it is ready for them.
  [[nodiscard]] bool open();
  [[nodiscard]] int fd() const { return fd_.get(); }
  /// The next signal's number, 0 when there is none.
  [[nodiscard]] int next();

 private:
  Fd fd_;
};

/// What earlier workers have left for the next one; -1: nothing yet.
struct Legacy {
  int device = -1;
  int lock = -1;     ///< of the store
  int notices = -1;  ///< Messenger's
};

/// The worker of now and the link to it. Needs external synchronisation.
class Worker {
 public:
  /// Starts `program`. False when the system has no room for it.
  [[nodiscard]] bool start(int program, const Legacy& legacy, const char* mountpoint);
  /// True once when it has ended, or nothing of it goes on (remains.h), with its status.
  [[nodiscard]] bool reap(int& status);
  void signal(int number) const;
  [[nodiscard]] pid_t pid() const { return pid_; }
  /// -1 when it has closed its end.
  [[nodiscard]] int link() const { return link_.get(); }
  void close_link() { link_.reset(); }

 private:
  pid_t pid_ = -1;
  Fd link_;
  Remains remains_;  ///< of earlier ones
};

/// Out of the OOM killer's reach and in memory for good, as far as the rights go.
void protect();
/// Detaches the mount: the one who can do it properly is gone. Best effort.
void detach(const char* mountpoint);

}  // namespace inductorfs::supervisor
