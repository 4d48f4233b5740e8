// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"

namespace inductorfs::fingerprint {

/// The files of a process as the process sees them: paths are absolute, and no link leads out of its root directory.
/// Every call blocks as long as the file system does. Immutable after construction.
class InRoot {
 public:
  [[nodiscard]] static Result<InRoot> open(const std::string& directory);

  /// Returns the path without any symbolic link in it.
  [[nodiscard]] Result<std::string> real_path(const std::string& path) const;
  [[nodiscard]] Result<Fd> open_regular(const std::string& path, uint64_t limit) const;
  /// Reads the whole content. Errors are those of open_regular().
  [[nodiscard]] Result<std::string> read_regular(const std::string& path, uint64_t limit) const;
  /// Returns the status of what the path leads to; empty when there is nothing, or it cannot be reached.
  [[nodiscard]] std::optional<struct stat> status(const std::string& path) const;
  [[nodiscard]] bool is_directory(const std::string& path) const;
  [[nodiscard]] bool is_program(const std::string& path) const;
  /// Returns the names in a directory, sorted; none when it cannot be read. kTooLarge when there are too many.
  [[nodiscard]] Result<std::vector<std::string>> names_in(const std::string& directory) const;

 private:
  explicit InRoot(Fd root) : root_(std::move(root)) {}
  Fd root_;
};

}  // namespace inductorfs::fingerprint
