// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/loose_thread.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <csignal>

#include "inductorfs/base/thread.h"

namespace inductorfs {
namespace {

constexpr unsigned kUnshare = 1U << 1;  ///< Linux, include/uapi/linux/close_range.h
constexpr int kSignalBase = 128;

std::atomic<int> loose_threads{0};

void on_crash(int number) {
  if (loose_threads.load(std::memory_order_relaxed) > 0) ::_exit(kSignalBase + number);
  (void)::raise(number);  // its action is the usual one by now
}

}  // namespace

bool run_loose(const char* name, const std::function<void()>& work) {
  auto thread = try_start_thread(name, [&work] {
    loose_threads.fetch_add(1, std::memory_order_relaxed);
    (void)::syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, kUnshare);
    work();
    loose_threads.fetch_sub(1, std::memory_order_relaxed);
  });
  if (!thread) return false;
  thread->join();
  return true;
}

void crash_without_loose_threads() noexcept {
  struct sigaction action {};
  action.sa_handler = on_crash;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) {
    (void)::sigaction(number, &action, nullptr);  // fails for wrong arguments only
  }
}

}  // namespace inductorfs
