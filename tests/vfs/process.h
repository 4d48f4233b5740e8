// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>

namespace inductorfs::testing {

/// A process that only exists, so that requests can be made in its name.
class Process {
 public:
  Process() : pid_(::fork()) { wait_if_child(); }
  /// One that uses a processor, half of it; or that waits for a child which does.
  enum class Work { kItself, kByChild };
  explicit Process(Work work) : pid_(::fork()) {
    if (pid_ == 0 && (work == Work::kItself || ::fork() == 0)) work_on();
    wait_if_child();
  }
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
  /// Ends with the process that it was forked by. What it uses between two pauses is time of a processor and not of a
  /// clock, so that it works as much where it has to wait for one.
  [[noreturn]] static void work_on() {
    for (const pid_t parent = ::getppid(); ::getppid() == parent;) {
      for (const auto begin = used(); used() - begin < std::chrono::milliseconds(50);) {
      }
      (void)::poll(nullptr, 0, 50);  // a pause, not a wait for a condition
    }
    ::_exit(0);
  }
  static std::chrono::nanoseconds used() {
    timespec at{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &at);
    return std::chrono::seconds(at.tv_sec) + std::chrono::nanoseconds(at.tv_nsec);
  }
  void wait_if_child() const {
    if (pid_ != 0) return;
    ::pause();
    ::_exit(0);
  }

  pid_t pid_;
};

}  // namespace inductorfs::testing
