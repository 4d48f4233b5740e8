// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/mount_table.h"

namespace inductorfs {

/// The paths at which processes with one list of mounts see the files of one file system. A container shows the file
/// system, or one of its directories, at a path of its own (a bind mount), and may cover a part of it with another
/// mount. Immutable after construction.
class MountPaths {
 public:
  /// Takes the mounts of `device` (MountEntry::device) that a path of the list leads to.
  MountPaths(const std::vector<MountEntry>& table, std::string_view device);

  /// Returns the absolute path of a file of the file system, by its path in there, relative and without a leading
  /// slash. If several paths lead to the file, that is `preferred` when it is one of them, else the one by the mount of
  /// the deepest directory. Empty when no path leads there.
  [[nodiscard]] std::optional<std::string> path_of(std::string_view path, std::string_view preferred) const;

 private:
  struct Shown {
    std::string root;  ///< the directory of the file system that is shown, without slashes at its ends
    std::string at;
  };
  [[nodiscard]] bool is_covered(const Shown& shown, std::string_view path) const;

  std::vector<Shown> shown_;         ///< the deepest directories first
  std::vector<std::string> covers_;  ///< mount points of all kinds below those of shown_
};

}  // namespace inductorfs
