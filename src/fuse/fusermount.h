// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"

/// fusermount3, the set-user-id program by which an ordinary user mounts; found in PATH.
namespace inductorfs::fuse {

/// Mounts with these `-o` options and returns the descriptor that fusermount3 sends back. kNotSupported when there is
/// no such program; kNotPermitted, with its own words, when it refused.
[[nodiscard]] Result<Fd> fusermount(const std::string& mountpoint, const std::string& options);
/// Unmounts. kBusy or kNotPermitted, with the program's own words.
[[nodiscard]] Result<void> fusermount_unmount(const std::string& mountpoint, bool lazy);

}  // namespace inductorfs::fuse
