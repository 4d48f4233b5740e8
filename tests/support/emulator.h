// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>

#include "support/lacks.h"

/// What a user-mode emulator of another processor (scripts/cross) does not show as the kernel does.
namespace inductorfs::testing {

/// qemu-user before 9.2 answers ENOSYS, on whatever kernel.
[[nodiscard]] inline bool has_openat2() {
  open_how how{};
  return ::syscall(SYS_openat2, AT_FDCWD, "", &how, sizeof how) >= 0 || errno != ENOSYS;
}

/// qemu-user answers for /proc/self/exe itself, and not for this path.
[[nodiscard]] inline bool is_emulated() {
  std::array<char, 4096> path{};
  const ssize_t size = ::readlink("/proc/thread-self/exe", path.data(), path.size());
  return size > 0 && std::string_view(path.data(), static_cast<size_t>(size)).find("/qemu-") != std::string_view::npos;
}

/// A process that lives as long as the test: this one. Under an emulator its parent, because qemu-user answers for
/// /proc/PID/stat of its own process, and with another start time in each thread.
[[nodiscard]] inline pid_t own_pid() { return is_emulated() ? ::getppid() : ::getpid(); }

}  // namespace inductorfs::testing

/// Ends a test that looks for files below another root, where nothing can do that.
#define INDUCTORFS_NEEDS_OPENAT2()                                               \
  do {                                                                           \
    if (!::inductorfs::testing::has_openat2()) {                                 \
      INDUCTORFS_LACKS("openat2(2): Linux before 5.6, or qemu-user before 9.2"); \
    }                                                                            \
  } while (false)

/// Ends a test of what a user-mode emulator has not, and says what that is.
#define INDUCTORFS_NEEDS_NO_EMULATOR(what)                                               \
  do {                                                                                   \
    if (::inductorfs::testing::is_emulated()) INDUCTORFS_LACKS(what " under qemu-user"); \
  } while (false)

/// Ends a test that reads in /proc what a program of ours has mapped, opened and in its environment, or when it began,
/// or that chooses its number.
#define INDUCTORFS_NEEDS_OWN_PROC()                                       \
  do {                                                                    \
    if (::inductorfs::testing::is_emulated()) {                           \
      INDUCTORFS_LACKS("its programs in /proc: their emulator is there"); \
    }                                                                     \
    INDUCTORFS_NEEDS_OPENAT2();                                           \
  } while (false)
