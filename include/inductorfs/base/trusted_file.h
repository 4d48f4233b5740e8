// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "inductorfs/base/result.h"

/// Files that decide what this process does, as configurations and passwords do. Only root and the user of this process
/// may be able to change them: else another user chooses the server whose code jobs run.
namespace inductorfs {

/// Succeeds if nobody but root and this user could have written the file or put it there: that is, they own it, every
/// directory on the way and every symbolic link, and nobody else may write to these. A directory that others may write
/// to is fine if it is sticky, and anything is fine on a file system that is mounted read-only, as the volumes of
/// Kubernetes are. kNotPermitted names what is open to others, and the remedy; a FIFO, a device or a socket is
/// kInvalid; other errors are those of lstat(2). `path` is absolute. Looks at no more than PATH_MAX bytes of path and
/// 40 links.
[[nodiscard]] Result<void> check_trusted_file(const std::string& path);

/// Reads a file that check_trusted_file() accepts; errors are also those of read_file(). It waits for nobody.
[[nodiscard]] Result<std::string> read_trusted_file(const std::string& path, uint64_t limit);

/// Gives what such a file has to somebody who may not read it. Safe for concurrent use; blocks on nothing. An error for
/// which is_passing() holds says that it was not read yet.
using FileSource = std::function<Result<std::string>(const std::string& path)>;
[[nodiscard]] inline bool is_passing(const Error& error) {
  return error.code() == ErrorCode::kUnavailable || error.code() == ErrorCode::kTimedOut;
}

}  // namespace inductorfs
