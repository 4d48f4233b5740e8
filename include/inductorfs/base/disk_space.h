// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/statvfs.h>

#include <optional>
#include <string>

namespace inductorfs {

/// Returns what a disk tells of its space. Nothing where it tells none, which is not "no space": ramfs, and the root of
/// a diskless node, have no such figures. Safe for concurrent use.
[[nodiscard]] inline std::optional<struct statvfs> disk_space(int file) {
  struct statvfs disk {};
  return ::fstatvfs(file, &disk) == 0 && disk.f_blocks > 0 ? std::optional(disk) : std::nullopt;
}
[[nodiscard]] inline std::optional<struct statvfs> disk_space(const std::string& path) {
  struct statvfs disk {};
  return ::statvfs(path.c_str(), &disk) == 0 && disk.f_blocks > 0 ? std::optional(disk) : std::nullopt;
}

}  // namespace inductorfs
