// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "inductorfs/base/result.h"

namespace inductorfs::fuse {

/// Converts an ErrorCode to the errno that a job sees; the only place that does so. It never returns ENOSYS: the kernel
/// takes that as "this file system has no such operation" and stops asking for the whole life of the mount.
[[nodiscard]] int to_errno(ErrorCode code) noexcept;

}  // namespace inductorfs::fuse
