// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"
#include "inductorfs/places/mount_table.h"

/// Bind mounts that are made and taken away by descriptor, and known by number: the directories on the way to one may
/// belong to somebody who renames them.
namespace inductorfs::places {

/// Which mount it is. The device is compared too, as the kernel gives the number of a mount that is gone to another.
struct BindId {
  uint64_t mount = 0;  ///< MountEntry::id; 0: not known
  std::string device;  ///< MountEntry::device of the file system that is shown
  bool operator==(const BindId&) const = default;
};

/// Shows the directory `source` at `place`.
[[nodiscard]] Result<BindId> bind(const Fd& source, const Fd& place);

/// The bind mount, wherever its directory is by now; null when it is gone.
[[nodiscard]] const MountEntry* find_bind(const std::vector<MountEntry>& table, const BindId& id);
/// Detaches what begins at this descriptor.
[[nodiscard]] Result<void> detach(const Fd& mount_root);
/// Detaches the mount that has this entry's number. Never another one that is at its path.
[[nodiscard]] Result<void> detach(const MountEntry& entry);

}  // namespace inductorfs::places
