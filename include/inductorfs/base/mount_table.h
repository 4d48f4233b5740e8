// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
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
  uint64_t id = 0;  ///< as in /proc/PID/fdinfo; no two mounts of a host have the same at one time

  [[nodiscard]] bool is_ours() const { return type == kFileSystemType; }
};

/// In the kernel's order: of two entries with one mount point the later one is what a path shows. Lines that cannot be
/// parsed are left out.
[[nodiscard]] std::vector<MountEntry> parse_mount_table(std::string_view text);
/// The mounts of this process; empty when /proc is not there. Touches no mount.
[[nodiscard]] std::vector<MountEntry> read_mount_table();
/// The mount with this number; null when there is none.
[[nodiscard]] const MountEntry* find_mount_by_id(const std::vector<MountEntry>& table, uint64_t id);
/// The user who mounted it, as the options of a FUSE mount say; nothing for mounts of other kinds.
[[nodiscard]] std::optional<uid_t> fuse_user_of(const MountEntry& entry);
/// What is on top exactly at `path`; null when nothing is mounted there.
[[nodiscard]] const MountEntry* find_mount_at(const std::vector<MountEntry>& table, std::string_view path);

}  // namespace inductorfs
