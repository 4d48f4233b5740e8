// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"
#include "inductorfs/config/ownership.h"
#include "inductorfs/places/mount_table.h"

/// The directory that is to be covered. Looks at it before any thread exists.
namespace inductorfs::places {

/// Whether `path` is a mount whose daemon is gone (ENOTCONN). Asked in a process of its own with a deadline: a daemon
/// that hangs makes everybody hang who touches its mount. Requires: one thread.
[[nodiscard]] bool is_dead_mount(const std::string& path);

/// Whether a process of its daemon is seen that has this very mount: a mount that a container was given has another
/// number there, and its daemon lives in another mount namespace.
[[nodiscard]] bool has_processes_here(const MountEntry& mount);

/// Whether the mount has lost all its processes but its messenger, which no kill ends while the kernel has it wait for
/// a lookup, and which keeps the device open: everybody waits who waited. As root it ends their requests.
[[nodiscard]] bool end_waits_without_daemon(const std::string& path);

/// fuse::unmount() of the mount with this device ("0:51" in /proc/self/mountinfo; empty: of any), which may be gone by
/// now: success then, and what lies below is left alone.
[[nodiscard]] Result<void> unmount_if_there(const std::string& path, bool lazy, const std::string& device = {});

/// Takes away what a dead daemon left mounted there. kBusy when anything living is mounted there.
[[nodiscard]] Result<void> free_mountpoint(const std::string& path);

/// kInvalid when `path`, or where it would be made, lies in an inductorfs mount: a mount in a mount, or a store that a
/// mount serves, waits for itself. `what`: the path in the words of the command line.
[[nodiscard]] Result<void> check_outside_of_mounts(const std::string& what, const std::string& path);

/// The path with symbolic links followed; kNotFound and kNotDirectory with the remedy.
[[nodiscard]] Result<std::string> resolve_mountpoint(const std::string& path);
[[nodiscard]] Result<config::Ownership> ownership_of(const std::string& mountpoint);
/// The directory to mount on, with O_PATH, of a path that resolve_mountpoint() gave. As root: who owns a directory on
/// the way could have put another one there since. kNotPermitted when it is not what `looked_at` was of.
[[nodiscard]] Result<Fd> open_mountpoint(const std::string& path, const config::Ownership& looked_at);

}  // namespace inductorfs::places
