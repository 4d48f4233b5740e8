// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace inductorfs::supervisor {

/// Passes the notices of a socket to the kernel, through the device, in their order. The kernel blocks the writer of a
/// notice for as long as any process holds the lock of the notice's directory. That may be any user's process, for
/// ever: a listing holds the lock while its buffer is fetched from a file system that does not answer. After kPatience
/// another thread goes on with the notices of other directories, and those of this directory wait behind it. Ends the
/// process when no process is left that could send a notice.
[[noreturn]] void carry_notices(int device, int notices);

}  // namespace inductorfs::supervisor
