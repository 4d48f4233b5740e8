// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "inductorfs/base/result.h"

namespace inductorfs::fuse {

/// The only place where an ErrorCode becomes the errno that a job sees. Never ENOSYS: the kernel takes that as "this
/// file system has no such operation" and stops asking for the whole life of the mount.
[[nodiscard]] int to_errno(ErrorCode code) noexcept;

}  // namespace inductorfs::fuse
