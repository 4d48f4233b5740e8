// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/result.h"
#include "inductorfs/config/paths.h"
#include "inductorfs/places/mount_table.h"

/// Finds the daemon of a mount without touching the mount.
namespace inductorfs::cli {

/// A daemon that listens.
struct Located {
  std::string socket;
  std::string mountpoint;  ///< as asked for
};

/// Waits a little for a daemon that is just being replaced. kNotFound: nothing of ours is mounted there. kUnavailable:
/// it is mounted, but its daemon is dead or not to be reached; kNotPermitted: it is another user's.
[[nodiscard]] Result<Located> locate_mount(const std::string& mountpoint, const config::Environment& environment);

/// The answer of the worker that serves the mount. One that dies hangs up on who asks it, and the next one is asked; so
/// only for requests without an effect. Blocks until the deadline at most. Errors: those of ask() and locate_mount().
[[nodiscard]] Result<std::string> ask_any_worker(const Located& mount, const std::string& request, Deadline deadline,
                                                 const config::Environment& environment);

/// Every mount whose daemon this user has started.
[[nodiscard]] std::vector<Located> own_mounts(const config::Environment& environment);

/// A path, taken apart: which daemon it belongs to, and its name relative to that mount.
struct LocatedPath {
  Located mount;
  std::string relative;
};
/// Knows mounts, their bind mounts, and the links that daemons of this user and of root say they made.
[[nodiscard]] Result<LocatedPath> locate_path(const std::string& path, const config::Environment& environment);

}  // namespace inductorfs::cli
