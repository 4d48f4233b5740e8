// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include "core.h"
#include "inductorfs/base/fd.h"
#include "remains.h"

namespace inductorfs::supervisor {

/// The process that looks at other processes for the worker (include/inductorfs/fingerprint/examiner.h). Each worker
/// has its own, of the same program. It is started anew when it ends, after a tenth of a second, and once a minute
/// where it always ends at once; it ends when the worker has. Needs external synchronisation.
class Examiner {
 public:
  /// Ends the one of the worker before, and makes the socket for the next worker. Returns that worker's end, which is
  /// to be closed when the worker has it; -1: there is none.
  [[nodiscard]] int renew();
  /// `words`: those of `inductorfs examiner`, ended by nullptr; they outlive this object. nullptr: there is none.
  explicit Examiner(const char* const* words) : words_(words) {}
  /// Starts the process from `program`, which it keeps for those that follow; after the worker, whose end it closes.
  void start(int program, Time now);
  /// Kills it, unless it has hardly begun: whoever asked may have asked the one before.
  void replace(Time now) const;
  void signal(int number) const;
  /// Starts another one where it has ended; to be called at each turn.
  void keep(Time now);
  /// Returns for how long there is nothing to do without an event; -1: for ever.
  [[nodiscard]] Time rest(Time now) const;

 private:
  void start(Time now);
  [[nodiscard]] bool reap();
  const char* const* words_;
  pid_t pid_ = -1;
  Fd program_;
  bool is_due_ = false;  ///< another one is to be started
  Time started_ = 0;
  Time pause_ = 0;  ///< from its start to that of the next one
  Fd worker_end_;
  Fd own_end_;
  Remains remains_;
};

}  // namespace inductorfs::supervisor
