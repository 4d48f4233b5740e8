// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "answer.h"
#include "closer.h"
#include "companion.h"
#include "core.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/supervisor/protocol.h"
#include "inductorfs/takeover/region.h"
#include "messenger.h"
#include "proxy.h"
#include "user.h"
#include "workers.h"

namespace inductorfs::supervisor {

/// The command line with which a supervisor is started, in addition to its descriptors.
struct Task {
  char* name = nullptr;  ///< argv[0]
  const char* mountpoint = nullptr;
  const char* log = nullptr;                                                        ///< nullptr: standard error
  const char* examiner[5] = {"inductorfs", "examiner", nullptr, nullptr, nullptr};  ///< its words; [3]: its cache file
  const char* mounter[5] = {"inductorfs", "mounter", nullptr, nullptr, nullptr};    ///< [3]: what it does once
  Limits limits;
  Root root;
  WorkerIds worker;  ///< whom workers become
};
/// Parses MOUNTPOINT and name=value arguments. Returns false for anything else.
[[nodiscard]] bool parse_task(int argc, char** argv, Task& task);

/// Keeps the device, and a worker that serves it; owns the descriptors of both. Confined to the main thread.
class Loop {
 public:
  Loop(const Task& task, takeover::Region& region);
  /// Runs until the mount has ended; returns the exit code.
  [[nodiscard]] int run();

 private:
  [[nodiscard]] Signs signs() const;
  /// Does what the core says; returns true when the process is to end.
  [[nodiscard]] bool act();
  void wait();
  void start_worker();
  [[nodiscard]] int rest() const;
  void take_signals();
  void take_words();
  void hear(Word word, Fd& descriptor);
  void take_upgrade(Fd program);
  void start_messenger();
  void leave_mount();
  void reap();
  void tell(Outcome outcome, pid_t pid, int status) const;
  [[nodiscard]] bool answers_control() const;
  void answer_control();
  void respond();
  [[nodiscard]] bool answer_left_over();
  [[nodiscard]] bool answer_left_over_here();
  void publish();

  Task task_;
  takeover::Region& region_;
  Core core_;
  Signals signals_;
  Worker worker_;
  Messenger messenger_;
  Proxy proxy_;
  Closer closer_;
  Companion examiner_;
  Companion mounter_;
  Fd program_;
  Fd new_program_;
  Fd earlier_program_;  ///< the program before the last upgrade
  Fd device_;
  Fd lock_;     ///< the lock of the mount's store, which is never free while the mount lives
  Fd control_;  ///< the listening control socket, so that who asks between two workers waits
  bool answered_left_over_ = false;
  bool has_guests_ = false;  ///< this worker has said at which socket guests come
  bool has_left_ = false;    ///< nothing of the mount is left
};

}  // namespace inductorfs::supervisor
