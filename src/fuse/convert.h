// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include "inductorfs/vfs/types.h"

/// Between the file system's values and those of the C library, in which libfuse speaks.
namespace inductorfs::fuse {

[[nodiscard]] struct stat to_stat(const vfs::Attributes& attributes) noexcept;
/// `valid`: libfuse's FUSE_SET_ATTR_* bits, which say what of `attributes` is meant.
[[nodiscard]] vfs::AttributeChange to_change(const struct stat& attributes, int valid) noexcept;
/// What write(2), truncate(2) and chown(2) leave of a mode: without set-user-id, and without set-group-id where it
/// means a group (with group execution; else it would mark mandatory locking).
[[nodiscard]] mode_t without_privileges(mode_t mode) noexcept;

}  // namespace inductorfs::fuse
