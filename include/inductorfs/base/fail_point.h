// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <string_view>

#include "inductorfs/base/result.h"

/// Named places at which a test ends the process, or makes the disk fail. tests/crash/manifest.txt lists all of them;
/// a lint check holds the list against the code.
///
/// Armed by the environment variable INDUCTORFS_FAIL_POINT, a list separated by commas:
///
///     NAME              kill -9 of the own process when it is reached
///     NAME:N            when it is reached for the Nth time
///     NAME=ERRNO        fail_point_error answers this errno ("EIO", "ENOSPC", "EROFS"...) from then on
///     NAME=ERRNO:N      from the Nth time on
///
/// With INDUCTORFS_FAIL_POINT_ONCE=FILE a kill makes FILE first, and no process is killed while FILE is there: so that
/// the next start of what the environment was handed on to lives. Safe for concurrent use.
namespace inductorfs {

namespace detail {
extern std::atomic<bool> fail_points_armed;
void reach_fail_point(const char* name) noexcept;
[[nodiscard]] int reach_fail_point_error(const char* name) noexcept;
}  // namespace detail

/// Between two durable steps. One relaxed load unless a test armed something.
inline void fail_point(const char* name) noexcept {
  if (detail::fail_points_armed.load(std::memory_order_relaxed)) [[unlikely]]
    detail::reach_fail_point(name);
}

/// Before a call to the disk: sets errno and answers true when a test wants the call to fail.
[[nodiscard]] inline bool fail_point_error(const char* name) noexcept {
  if (!detail::fail_points_armed.load(std::memory_order_relaxed)) [[likely]]
    return false;
  errno = detail::reach_fail_point_error(name);
  return errno != 0;
}

/// Arms what `list` says and nothing else; an empty list disarms. The environment's list is armed before main().
/// kInvalid: not a list; nothing is armed then. Requires: no other thread is near a fail point.
[[nodiscard]] Result<void> arm_fail_points(std::string_view list);

}  // namespace inductorfs
