// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "inductorfs/base/result.h"

/// Which files a process may still open (Landlock, from Linux 5.13 on).
namespace inductorfs {

/// From now on the calling thread, and what it starts, opens no file and lists no directory but those below this open
/// directory, and nothing for writing, wherever a path or a descriptor leads; for good. What is open stays so. The
/// kernel then lets it look into no process that is not bound so. Without CAP_SYS_ADMIN it can win no privileges from
/// then on. kNotSupported where the kernel, or the container, has no such bounds.
[[nodiscard]] Result<void> bound_reading(int directory);

}  // namespace inductorfs
