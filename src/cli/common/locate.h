// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/result.h"
#include "inductorfs/config/paths.h"

/// Finds the daemon of a mount without touching the mount.
namespace inductorfs::cli {

/// A daemon that listens on its control socket.
struct Located {
  std::string socket;
  std::string mountpoint;     ///< as the user spelled it
  std::string why_missing{};  ///< of a mount that should be here and is not
};

/// Finds the daemon of a mount; waits briefly for a daemon that is being replaced. kNotFound when no inductorfs mount
/// is there, kUnavailable when its daemon is dead or cannot be reached, kNotPermitted when it is another user's,
/// kNotSupported when it is served from outside this container or mount namespace.
[[nodiscard]] Result<Located> locate_mount(const std::string& mountpoint, const config::Environment& environment);

/// Returns the answer of the worker that serves the mount. A worker that dies hangs up on its callers, and the next
/// worker is then asked; so this is only for requests without an effect. Blocks until the deadline at most. Errors are
/// those of ask() and locate_mount().
[[nodiscard]] Result<std::string> ask_any_worker(const Located& mount, const std::string& request, Deadline deadline,
                                                 const config::Environment& environment);

/// Returns every mount that can be seen here: first those of this user and of root whose daemons answer, then the
/// others of the mount table. One whose daemon has no socket where this process looks has none here.
[[nodiscard]] std::vector<Located> all_mounts(const config::Environment& environment);

/// Returns the mounts that are not among these although a unit of this host is enabled for them, or has a
/// configuration.
[[nodiscard]] std::vector<Located> missing_mounts(const std::vector<Located>& mounts,
                                                  const config::Environment& environment);

/// Returns every mount whose daemon this user has started.
[[nodiscard]] std::vector<Located> own_mounts(const config::Environment& environment);

/// The daemon that a path belongs to, and the path relative to that daemon's mount.
struct LocatedPath {
  Located mount;
  std::string relative;
};
/// Locates a path. It knows mounts, their bind mounts, and the links that daemons of this user and of root say they
/// made.
[[nodiscard]] Result<LocatedPath> locate_path(const std::string& path, const config::Environment& environment);

}  // namespace inductorfs::cli
