// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "inductorfs/base/fd.h"

namespace inductorfs::supervisor {

/// With what the name of a program begins that may serve next.
inline constexpr const char* kProgramName = "inductorfs";

/// Opens a program anew (O_PATH) at the path that it has in this process's mount namespace, if nobody but root and the
/// user of this process can have made it, and put it there: they own it and every directory above it, which no others
/// may write to (one that is sticky, as /tmp, they may), no FUSE says so, and its name begins with kProgramName. Else
/// empty. A worker names what is to serve next, and for root's mount companions of that begin with root's rights; whose
/// descriptor `program` is may have shown it something else at that path. Allocates nothing; waits for the file system.
/// Safe for concurrent use.
[[nodiscard]] Fd open_own_program(int program);

}  // namespace inductorfs::supervisor
