// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"

/// Files whose names somebody else chose: a user's package, an option's value. Such a name may be a FIFO, a device, or
/// a file without end.
namespace inductorfs {

/// Opens a regular file for reading; `path` is absolute or relative to `dir`, as in open_at(). Never waits for the
/// other end of a FIFO or for the holder of a lease. kInvalid when the path is no regular file, kTooLarge when the file
/// has more than `limit` bytes; else errors as open(2). A symbolic link is followed: environments that a tool links
/// together from one store are common.
[[nodiscard]] Result<Fd> open_regular(int dir, const std::string& path, uint64_t limit);
[[nodiscard]] Result<Fd> open_regular(const std::string& path, uint64_t limit);

/// The whole content. Errors as open_regular().
[[nodiscard]] Result<std::string> read_regular(const std::string& path, uint64_t limit);

}  // namespace inductorfs
