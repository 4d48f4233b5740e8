// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include "inductorfs/base/fd.h"

namespace inductorfs::supervisor {

/// The life of a messenger that somebody has started with the descriptors of protocol.h.
[[noreturn]] void be_messenger();

/// A process that tells the kernel what workers want it to forget. The kernel may hold such a notice up until a request
/// is answered (fuse_reverse_inval_entry() waits for the lock of the directory, whose holder waits for us), and no
/// signal ends that wait: a worker that was killed in it would not die, keep the store's lock, and never be replaced.
/// This process keeps nothing but the device and its end of the notices. It ends when nobody is left who could send
/// one. Needs external synchronisation.
class Messenger {
 public:
  /// Before the first worker. Without it workers tell the kernel themselves.
  void open();
  /// Where workers send notices to; -1: nowhere.
  [[nodiscard]] int notices() const { return out_.get(); }
  /// `name`: argv[0] of this process, which is changed in the new one; none: it stays. False: there is none, and none
  /// will be.
  bool start(int device, char* name);
  /// True once when it has ended, although it was not to.
  [[nodiscard]] bool reap();

 private:
  pid_t pid_ = -1;
  Fd out_;
  Fd in_;
};

}  // namespace inductorfs::supervisor
