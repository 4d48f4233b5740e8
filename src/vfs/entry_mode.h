// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include "inductorfs/codec/entry.h"
#include "inductorfs/layout/layout.h"

namespace inductorfs::vfs {

/// The permission bits that an entry is shown with: its writer's, as far as its family makes such files. An entry may
/// be anybody's: one that its reader could not open would be an EACCES that no local cache has.
[[nodiscard]] inline mode_t mode_of(const codec::Entry& entry) {
  constexpr mode_t kUsual = 0644;  // open(2) under the usual umask, as torch and Triton write
  constexpr mode_t kOwnerReads = 0400;
  constexpr mode_t kExecute = 0111;
  const layout::Family family = layout::classify(entry.path).family;
  const bool is_program = family == layout::Family::kCppBinary || family == layout::Family::kTritonLauncher;
  mode_t mode = entry.mode & 0777;
  if ((mode & kOwnerReads) == 0) mode = kUsual;
  return is_program ? mode : mode & ~kExecute;
}

}  // namespace inductorfs::vfs
