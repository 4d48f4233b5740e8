// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"

/// Files of a package. Another user chose their names, so a name may be a FIFO, a device, or a file without end.
namespace inductorfs::fingerprint {

/// Opens a regular file for reading. Never waits for the other end of a FIFO or for the holder of a lease. kInvalid
/// when the path is no regular file, kTooLarge when the file has more than `limit` bytes; else errors as open(2).
/// A symbolic link is followed: environments that a tool links together from one store are common.
[[nodiscard]] Result<Fd> open_regular(const std::string& path, uint64_t limit);

/// The whole content. Errors as open_regular().
[[nodiscard]] Result<std::string> read_regular(const std::string& path, uint64_t limit);

}  // namespace inductorfs::fingerprint
