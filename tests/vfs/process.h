// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
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
  /// One that uses a processor, half of it; or that waits for a child which does; or that uses all of the first
  /// processor of this one's; or that is always ready to run there, and runs when nobody else does.
  enum class Work { kItself, kByChild, kAll, kLeftOver };
  explicit Process(Work work) : pid_(::fork()) {
    const bool by_child = work == Work::kByChild;
    if (pid_ == 0 && (!by_child || ::fork() == 0)) {
      if (work == Work::kAll || work == Work::kLeftOver) spin(work == Work::kLeftOver);
      work_on();
    }
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
  /// Ends with the process that it was forked by.
  [[noreturn]] static void spin(bool is_last) {
    cpu_set_t all;
    cpu_set_t first;
    CPU_ZERO(&first);
    if (::sched_getaffinity(0, sizeof all, &all) != 0) ::_exit(1);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&first) == 0; ++cpu) {
      if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &first);
    }
    const sched_param none{};
    if (::sched_setaffinity(0, sizeof first, &first) != 0) ::_exit(1);
    if (is_last && ::sched_setscheduler(0, SCHED_IDLE, &none) != 0) ::_exit(1);
    for (const pid_t parent = ::getppid(); ::getppid() == parent;) {
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
