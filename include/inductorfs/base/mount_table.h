// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"

/// The kernel's list of mounts: the only way to learn about a mount that cannot hang when its daemon does. Everything
/// here is pure or reads /proc, and safe for concurrent use.
namespace inductorfs {

inline constexpr std::string_view kFileSystemType = "fuse.inductorfs";

/// One line of /proc/self/mountinfo (proc(5)). Immutable value.
struct MountEntry {
  std::string device;  ///< "major:minor"; equal for a mount and its bind mounts
  std::string root;    ///< the directory of the file system that is shown: "/", or another one for a bind mount
  std::string mount_point;
  std::string type;
  std::string source;
  std::string super_options;
  uint64_t id = 0;      ///< as in /proc/PID/fdinfo; no two mounts of a host have the same id at the same time
  uint64_t parent = 0;  ///< the id of the mount that it is mounted on; that mount may be missing in the list

  [[nodiscard]] bool is_ours() const { return type == kFileSystemType; }
};

/// Parses the list and keeps the kernel's order: of two entries with one mount point a path shows the later one. Lines
/// that cannot be parsed are left out.
[[nodiscard]] std::vector<MountEntry> parse_mount_table(std::string_view text);
/// Reads the mounts of this process, or of the one that has opened a given table; empty when /proc is not there.
/// Touches no mount.
[[nodiscard]] std::vector<MountEntry> read_mount_table();
/// Has read_mount_table() and open_mount_table() use this /proc/PID/mountinfo from now on, which whoever started this
/// process has opened: a process with a tree of files of its own sees no other mounts. Before there are threads.
void use_mount_table(Fd table);
/// Opens the list, for poll(2), which tells when it has changed.
[[nodiscard]] Result<Fd> open_mount_table();
/// Reads the mounts that a process (of this name in the directory `proc`: a number, or "self") sees, of a list of at
/// most `limit` bytes. An error when the process is gone, or its list is longer. Touches no mount.
[[nodiscard]] Result<std::vector<MountEntry>> read_mounts_of(const std::string& proc, const std::string& process,
                                                             uint64_t limit);
/// Returns the mount with this id, or nullptr when there is none.
[[nodiscard]] const MountEntry* find_mount_by_id(const std::vector<MountEntry>& table, uint64_t id);
/// Returns MountEntry::id of the mount that the file lies in. Asks nothing of that mount.
[[nodiscard]] Result<uint64_t> mount_id_of(const Fd& fd);
/// Returns the user who mounted it, from the options of a FUSE mount; empty for mounts of other kinds.
[[nodiscard]] std::optional<uid_t> fuse_user_of(const MountEntry& entry);
/// Returns the topmost mount exactly at `path`, or nullptr when nothing is mounted there.
[[nodiscard]] const MountEntry* find_mount_at(const std::vector<MountEntry>& table, std::string_view path);

}  // namespace inductorfs
