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

/// What a directory holds under one name. Immutable value.
struct DirectoryEntry {
  enum class Kind { kFile, kDirectory, kLink, kOther };
  std::string name;
  Kind kind = Kind::kOther;
  struct stat status {};  ///< of a file, if it was asked for
};

/// The files of a process as the process sees them: paths are absolute, and no link leads out of its root directory.
/// Every call blocks as long as the file system does. Immutable after construction.
class InRoot {
 public:
  /// Returns the files as this process itself sees them.
  [[nodiscard]] static InRoot host() { return InRoot(Fd()); }
  [[nodiscard]] static Result<InRoot> open(const std::string& directory);
  [[nodiscard]] bool is_host() const { return !root_; }
  /// Returns its directory; -1: the host's.
  [[nodiscard]] int descriptor() const { return root_.get(); }
  /// Opens what the path leads to; symbolic links are followed in the root.
  [[nodiscard]] Result<Fd> open_at_path(const std::string& path, int flags) const;
  /// Returns the path without any symbolic link in it.
  [[nodiscard]] Result<std::string> real_path(const std::string& path) const;
  [[nodiscard]] Result<Fd> open_regular(const std::string& path, uint64_t limit) const;
  /// Reads the whole content. Errors are those of open_regular().
  [[nodiscard]] Result<std::string> read_regular(const std::string& path, uint64_t limit) const;
  /// Returns what a symbolic link says.
  [[nodiscard]] Result<std::string> read_link(const std::string& path) const;
  /// Returns the status of what the path leads to; empty when there is nothing, or it cannot be reached.
  [[nodiscard]] std::optional<struct stat> status(const std::string& path) const;
  [[nodiscard]] bool is_directory(const std::string& path) const;
  [[nodiscard]] bool is_regular(const std::string& path) const;
  [[nodiscard]] bool is_program(const std::string& path) const;
  /// Returns what a directory holds, sorted by name. kTooLarge when it holds more than `limit`.
  [[nodiscard]] Result<std::vector<DirectoryEntry>> entries_in(const std::string& directory, size_t limit,
                                                               bool with_status = false) const;
  /// Returns the names in a directory, sorted; none when it cannot be read. kTooLarge when there are too many.
  [[nodiscard]] Result<std::vector<std::string>> names_in(const std::string& directory) const;

 private:
  explicit InRoot(Fd root) : root_(std::move(root)) {}
  Fd root_;  ///< none: the host's
};

}  // namespace inductorfs::fingerprint
