// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <span>

#include "core.h"
#include "inductorfs/base/fd.h"
#include "remains.h"

namespace inductorfs::supervisor {

/// What a companion is started as. Immutable value, of constants and of what outlives it.
struct CompanionTask {
  const char* name = nullptr;          ///< in the log
  const char* const* words = nullptr;  ///< of its command, ended by nullptr
  int socket = -1;                     ///< at which number it finds its end of the socket
  std::span<const int> kept{};         ///< the numbers of the mount's descriptors that it has beside that
};

/// A process that does for the worker what takes rights that the worker does not have: the examiner
/// (include/inductorfs/fingerprint/examiner.h), the mounter (src/mount/mounter.h). Each worker has its own, of the same
/// program. It is started anew when it ends, after a tenth of a second, and once a minute where it always ends at once;
/// it ends when the worker has. It leads a process group, and what it has started ends with it, also where that stands
/// still. Needs external synchronisation.
class Companion {
 public:
  explicit Companion(const CompanionTask& task) : task_(task) {}
  /// Ends the one of the worker before, and makes the socket for the next worker. Returns that worker's end, which is
  /// to be closed when the worker has it; -1: there is no room for it.
  [[nodiscard]] int renew();
  /// Starts the process from `program`, which it keeps for those that follow; after the worker, whose end it closes.
  void start(int program, Time now);
  /// Kills it, unless it has hardly begun: whoever asked may have asked the one before.
  void replace(Time now) const;
  /// To it and what it has started.
  void signal(int number) const;
  /// Starts another one where it has ended; to be called at each turn.
  void keep(Time now);
  /// Returns for how long there is nothing to do without an event; -1: for ever.
  [[nodiscard]] Time rest(Time now) const;

 private:
  void start(Time now);
  [[nodiscard]] bool reap();
  const CompanionTask task_;
  pid_t pid_ = -1;
  Fd program_;
  bool is_due_ = false;  ///< another one is to be started
  Time started_ = 0;
  Time pause_ = 0;  ///< from its start to that of the next one
  Fd worker_end_;
  Fd own_end_;
  Remains remains_;
};

/// Runs `program` once as a companion without a socket, and waits until it has closed its standard error, for
/// `patience` at most: then it is killed. For the last moment of a supervisor. It inherits `unclosed`, unless that is
/// -1: a file on a disk that may not answer, which would not let go of the process before it is the program.
void run_companion(int program, const CompanionTask& task, Time patience, int unclosed);

}  // namespace inductorfs::supervisor
