// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include "inductorfs/base/fd.h"
#include "user.h"

namespace inductorfs::supervisor {

/// A process that tells the kernel what workers want it to forget. The kernel may block the writer of such a notice
/// until a request is answered (fuse_reverse_inval_entry() waits for the lock of the directory, whose holder waits for
/// us), and no signal ends that wait: a worker that was killed in it would not die, would keep the store's lock, and
/// could never be replaced. The messenger holds nothing but the device and its end of the socket. It ends when no
/// process is left that could send a notice. Needs external synchronisation.
class Messenger {
 public:
  /// Makes the socket, before the first worker. Without it workers tell the kernel themselves.
  void open();
  /// Returns the end of the socket that workers send notices to; -1: there is none.
  [[nodiscard]] int notices() const { return out_.get(); }
  /// Starts the process. `name` is argv[0] of this process, which is changed in the new one; nullptr leaves it. It is
  /// `user`. Returns false when there is no messenger, and none will be.
  bool start(int device, char* name, const WorkerIds& user);
  /// Returns true once when the messenger has ended unexpectedly.
  [[nodiscard]] bool reap();

 private:
  pid_t pid_ = -1;
  Fd out_;
  Fd in_;
};

}  // namespace inductorfs::supervisor
