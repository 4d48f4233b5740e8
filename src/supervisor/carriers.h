// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace inductorfs::supervisor {

/// Tells the kernel, through the device, the notices of a socket in their order. The kernel holds one up for as long as
/// somebody has the lock of its directory, which may be any user, for ever: a listing keeps it while its buffer is
/// fetched from a file system that does not answer. After kPatience others go on with the notices of other directories,
/// and those of this one wait behind it. Ends the process when nobody is left who could send one.
[[noreturn]] void carry_notices(int device, int notices);

}  // namespace inductorfs::supervisor
