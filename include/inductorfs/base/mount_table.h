// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

/// The kernel's list of mounts: the only way to learn about a mount that cannot hang when its daemon does. Everything
/// here is pure or reads /proc, and safe for concurrent use.
namespace inductorfs {

inline constexpr std::string_view kFileSystemType = "fuse.inductorfs";

/// One line of /proc/self/mountinfo (proc(5)). Immutable value.
struct MountEntry {
  std::string device;  ///< "major:minor"; equal for a mount and its bind mounts
  std::string root;    ///< the directory of the file system that is shown: "/" or a bind mount's
  std::string mount_point;
  std::string type;
  std::string source;
  std::string super_options;

  [[nodiscard]] bool is_ours() const { return type == kFileSystemType; }
};

/// In the kernel's order: of two entries with one mount point the later one is what a path shows. Lines that cannot be
/// parsed are left out.
[[nodiscard]] std::vector<MountEntry> parse_mount_table(std::string_view text);
/// The mounts of this process; empty when /proc is not there. Touches no mount.
[[nodiscard]] std::vector<MountEntry> read_mount_table();
/// What is on top exactly at `path`; null when nothing is mounted there.
[[nodiscard]] const MountEntry* find_mount_at(const std::vector<MountEntry>& table, std::string_view path);

}  // namespace inductorfs
