// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"
#include "inductorfs/places/own_mounts.h"

/// Bind mounts that are made and removed by descriptor and identified by number, because the directories on the way to
/// one may belong to a user who renames them.
namespace inductorfs::places {

/// Identifies a mount. The device is compared too, because the kernel may reuse the number of a mount that is gone.
struct BindId {
  uint64_t mount = 0;  ///< MountEntry::id; 0: not known
  std::string device;  ///< MountEntry::device of the file system that is shown
  bool operator==(const BindId&) const = default;
};

/// Shows the directory `source` at `place` and returns the new bind mount. With `beneath`, `place` is the root of a
/// mount, and the new one comes beneath that: an error before Linux 6.5.
[[nodiscard]] Result<BindId> bind(const Fd& source, const Fd& place, bool beneath = false);

/// Says whether this mount shows a directory of ours that was removed since.
[[nodiscard]] bool shows_removed(const MountEntry& entry);

/// A directory that a mount covers, and the directory that it lies in, both without any mount on top of them.
struct Covered {
  Fd around;
  Fd directory;  ///< O_PATH
};

/// Opens what the mount at `path` covers. Asks nothing of that mount. kNotPermitted for an ordinary user.
[[nodiscard]] Result<Covered> open_covered(const std::string& path);

/// Detaches the mount whose root this descriptor is.
[[nodiscard]] Result<void> detach(const Fd& mount_root);
/// Detaches the mount that has this entry's number, and never another one that is at its path.
[[nodiscard]] Result<void> detach(const MountEntry& entry);

}  // namespace inductorfs::places
