// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include "inductorfs/vfs/types.h"

/// Conversions between the file system's values and those of the C library, which libfuse uses.
namespace inductorfs::fuse {

[[nodiscard]] struct stat to_stat(const vfs::Attributes& attributes) noexcept;
/// `valid` has libfuse's FUSE_SET_ATTR_* bits, which say which of `attributes` are to be set.
[[nodiscard]] vfs::AttributeChange to_change(const struct stat& attributes, int valid) noexcept;
/// Returns the mode that write(2), truncate(2) and chown(2) leave: without set-user-id, and without set-group-id where
/// that bit means a group (with group execution; without it the bit would mark mandatory locking).
[[nodiscard]] mode_t without_privileges(mode_t mode) noexcept;

}  // namespace inductorfs::fuse
