// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace inductorfs::fuse {

/// One line of /proc/self/mountinfo.
struct MountEntry {
  std::string device;  ///< "major:minor"
  std::string mountpoint;
  std::string type;
  std::string source;
};

/// All lines of a mountinfo text that can be read; later lines lie over earlier ones.
[[nodiscard]] std::vector<MountEntry> parse_mount_table(std::string_view text);
/// The mounts of this process; empty when /proc is not there. Touches no mount.
[[nodiscard]] std::vector<MountEntry> read_mount_table();
/// What lies uppermost exactly at `mountpoint`.
[[nodiscard]] std::optional<MountEntry> find_mount(const std::vector<MountEntry>& table, std::string_view mountpoint);
/// Whether `path` is `directory` or lies below it, by the text alone.
[[nodiscard]] bool is_within(std::string_view path, std::string_view directory);
/// The path as the mount table spells it: without symbolic links and doubled slashes. Asks nothing of a mount that lies
/// exactly there, so it does not hang on a dead one. Unchanged when it cannot be resolved.
[[nodiscard]] std::string resolved_mountpoint(const std::string& path);

}  // namespace inductorfs::fuse
