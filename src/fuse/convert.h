// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include "inductorfs/base/result.h"
#include "inductorfs/vfs/types.h"

/// Conversions between the file system's values and those of the C library, which libfuse uses.
namespace inductorfs::fuse {

/// Converts an ErrorCode to the errno that a job sees; the only place that does so. It never returns ENOSYS: the kernel
/// takes that as "this file system has no such operation" and stops asking for the whole life of the mount.
[[nodiscard]] int to_errno(ErrorCode code) noexcept;

[[nodiscard]] struct stat to_stat(const vfs::Attributes& attributes) noexcept;
/// `valid` has libfuse's FUSE_SET_ATTR_* bits, which say which of `attributes` are to be set.
[[nodiscard]] vfs::AttributeChange to_change(const struct stat& attributes, int valid) noexcept;
/// Returns the mode that write(2), truncate(2) and chown(2) leave: without set-user-id, and without set-group-id where
/// that bit means a group (with group execution; without it the bit would mark mandatory locking).
[[nodiscard]] mode_t without_privileges(mode_t mode) noexcept;

}  // namespace inductorfs::fuse
