// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <algorithm>

#include "inductorfs/base/clock.h"
#include "inductorfs/codec/entry.h"
#include "inductorfs/layout/layout.h"

namespace inductorfs::vfs {

/// Returns the time of its last change with which an entry is shown. The clock of its writer's host may be ahead of
/// this one's, and programs take a time in the future for an error, or for a file that still changes (make, tar).
[[nodiscard]] inline int64_t mtime_of(const codec::Entry& entry) {
  return std::min(entry.mtime_ns, system_clock().wall_now());
}

/// Returns the permission bits with which an entry is shown: those of its writer, as far as its family makes such
/// files, and everybody may read it. A writer's umask says who may read the file on the writer's own host. On every
/// other host the entry belongs to the owner of the mount, and a job of another user that finds the name must be able
/// to open it: EACCES is an error that a miss in a local cache never gives. Nobody but the owner may write to it: a
/// writer on another host that had umask 0 must not let other users change what root's jobs load.
[[nodiscard]] inline mode_t mode_of(const codec::Entry& entry) {
  constexpr mode_t kUsual = 0644;  // open(2) under the usual umask, as torch and Triton write
  constexpr mode_t kOwnerReads = 0400;
  constexpr mode_t kOwnerExecutes = 0100;
  constexpr mode_t kRead = 0444;
  constexpr mode_t kExecute = 0111;
  constexpr mode_t kOthersWrite = 0022;
  const layout::Family family = layout::classify(entry.path).family;
  const bool is_program = family == layout::Family::kCppBinary || family == layout::Family::kTritonLauncher;
  mode_t mode = entry.mode & 0777;
  if ((mode & kOwnerReads) == 0) mode = kUsual;
  mode = (mode | kRead) & ~kOthersWrite;
  if (!is_program) return mode & ~kExecute;
  return (mode & kOwnerExecutes) == 0 ? mode : mode | kExecute;
}

}  // namespace inductorfs::vfs
