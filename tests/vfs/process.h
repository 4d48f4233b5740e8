// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>

namespace inductorfs::testing {

/// A process that only exists, so that requests can be made in its name.
class Process {
 public:
  Process() : pid_(::fork()) { wait_if_child(); }
  /// With a number that is free. Needs root; alive() tells whether it came to be.
  explicit Process(pid_t number) {
    clone_args how{};
    how.exit_signal = SIGCHLD;
    how.set_tid = reinterpret_cast<uintptr_t>(&number);
    how.set_tid_size = 1;
    pid_ = static_cast<pid_t>(::syscall(SYS_clone3, &how, sizeof how));
    wait_if_child();
  }
  ~Process() { end(); }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] bool alive() const { return pid_ > 0; }

 private:
  void wait_if_child() const {
    if (pid_ != 0) return;
    ::pause();
    ::_exit(0);
  }

  pid_t pid_;
};

}  // namespace inductorfs::testing
