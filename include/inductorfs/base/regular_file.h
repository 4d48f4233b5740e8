// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"

/// Reads files whose names somebody else chose: in a user's package, or as an option's value. Such a name may be a
/// FIFO, a device, or a file without end.
namespace inductorfs {

/// Opens a regular file for reading; `path` is absolute or relative to `dir`, as in open_at(). It never waits for the
/// other end of a FIFO or for the holder of a lease. kInvalid when the path is no regular file, kTooLarge when the file
/// has more than `limit` bytes; other errors are those of open(2). It follows a symbolic link, because environments
/// that a tool links together from one store are common.
[[nodiscard]] Result<Fd> open_regular(int dir, const std::string& path, uint64_t limit);
[[nodiscard]] Result<Fd> open_regular(const std::string& path, uint64_t limit);

/// Opens `path` as a process would whose root directory is the open directory `root`: neither "..", nor a symbolic link
/// of the tree, nor a magic link of /proc leads out of it. With O_PATH in `flags` nothing is waited for but the file
/// system.
[[nodiscard]] Result<Fd> open_in_root(int root, const std::string& path, int flags);
/// Opens for reading what is open with O_PATH; `path` names it in errors, which are those of open_regular().
[[nodiscard]] Result<Fd> reopen_regular(const Fd& file, const std::string& path, uint64_t limit);

/// Reads the whole content. Errors are those of open_regular().
[[nodiscard]] Result<std::string> read_regular(const std::string& path, uint64_t limit);
/// The same of a file that is open; errors name it by `path`.
[[nodiscard]] Result<std::string> read_whole(const Fd& file, const std::string& path);

}  // namespace inductorfs
