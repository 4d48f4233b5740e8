// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <string>
#include <string_view>

#include "inductorfs/base/result.h"

/// Named places at which a test ends the process, or makes a call to the disk fail. tests/crash/manifest.txt lists all
/// of them, and a lint check compares the list with the code.
///
/// They are armed by the environment variable INDUCTORFS_FAIL_POINT, a list separated by commas:
///
///     NAME              the process kills itself (kill -9) when it reaches the place
///     NAME:N            the same when it reaches the place for the Nth time
///     NAME=ERRNO        fail_point_error answers this errno ("EIO", "ENOSPC", "EROFS"...) from then on
///     NAME=ERRNO:N      the same from the Nth time on
///
/// With INDUCTORFS_FAIL_POINT_ONCE=FILE a kill makes FILE first, and no process is killed while FILE is there: a
/// process that inherits the environment and is started next lives. Safe for concurrent use.
namespace inductorfs {

namespace detail {
extern std::atomic<bool> fail_points_armed;
void reach_fail_point(const char* name) noexcept;
[[nodiscard]] int reach_fail_point_error(const char* name) noexcept;
}  // namespace detail

/// Marks the place between two durable steps. It costs one relaxed load unless a test armed something.
inline void fail_point(const char* name) noexcept {
  if (detail::fail_points_armed.load(std::memory_order_relaxed)) [[unlikely]]
    detail::reach_fail_point(name);
}

/// Marks the place before a call to the disk: sets errno and answers true when a test wants the call to fail.
[[nodiscard]] inline bool fail_point_error(const char* name) noexcept {
  if (!detail::fail_points_armed.load(std::memory_order_relaxed)) [[likely]]
    return false;
  errno = detail::reach_fail_point_error(name);
  return errno != 0;
}

/// Arms the fail points of `list` and no others; an empty list disarms all. The environment's list is armed before
/// main(). kInvalid when it is not a list; then nothing is armed. No other thread may be near a fail point.
[[nodiscard]] Result<void> arm_fail_points(std::string_view list);

/// The directory of INDUCTORFS_FAIL_POINT_ONCE, which a process with a tree of its own needs in it; empty: there is
/// none.
[[nodiscard]] std::string fail_point_directory();

}  // namespace inductorfs
