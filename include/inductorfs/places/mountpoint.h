// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"
#include "inductorfs/config/ownership.h"
#include "inductorfs/places/bind.h"
#include "inductorfs/places/own_mounts.h"

/// The directory that a mount is to cover. These functions examine it before the process has any other thread.
namespace inductorfs::places {

/// Says whether `path` is a mount whose daemon is gone (ENOTCONN). A child process with a deadline asks the kernel,
/// because every process that touches a mount hangs while its daemon hangs. The process must have one thread.
[[nodiscard]] bool is_dead_mount(const std::string& path);

/// Says whether /proc shows a process of the mount's daemon that has this very mount. It does not for a mount that a
/// container was given: that mount has another number there, and its daemon lives in another mount namespace.
[[nodiscard]] bool has_processes_here(const MountEntry& mount);

/// Ends the requests of a mount that has lost all its processes but its messenger, if the caller is root, and returns
/// whether it is such a mount. No kill ends the messenger while the kernel makes it wait for a lookup, and the
/// messenger keeps the device open, so processes that wait for the mount go on waiting. Another mount that is at the
/// path of `mount` by now keeps its requests.
[[nodiscard]] bool end_waits_without_daemon(const MountEntry& mount);

/// Unmounts this mount with fuse::unmount() if it is still at `path`. If it is not, or not known, this is a success and
/// leaves every other mount alone.
[[nodiscard]] Result<void> unmount_if_there(const std::string& path, const BindId& mount, bool lazy);

/// Returns the mount that was just made at `mountpoint`; `id` is its number, or 0 for that of this user there. When
/// another mount is there, or none, because the directories around the mountpoint were renamed meanwhile, it takes the
/// mount with the number away, wherever it is, and returns kNotPermitted.
[[nodiscard]] Result<BindId> find_own_mount(const std::string& mountpoint, uint64_t id);

/// Removes what a dead daemon left mounted there. kBusy when anything living is mounted there.
[[nodiscard]] Result<void> free_mountpoint(const std::string& path);

/// Refuses with kInvalid a `path` that lies, or would be made, in an inductorfs mount: a mount in a mount, or a store
/// that a mount serves, waits for itself. `what` is the path in the words of the command line.
[[nodiscard]] Result<void> check_outside_of_mounts(const std::string& what, const std::string& path);

/// Refuses with kInvalid a directory on a file system that the kernel makes up (/proc, /sys), or below a file, where
/// nothing can be stored. `what` is the path in the words of the command line.
[[nodiscard]] Result<void> check_can_hold_files(const std::string& what, const std::string& path);

/// Returns an absolute path with symbolic links followed. kNotFound and kNotDirectory name the remedy. For root a link
/// of another user leads only to a directory of that user; else kNotPermitted.
[[nodiscard]] Result<std::string> resolve_mountpoint(const std::string& path);
[[nodiscard]] Result<config::Ownership> ownership_of(const std::string& mountpoint);
/// Opens, with O_PATH, the directory to mount on; `path` is one that resolve_mountpoint() returned. It matters to root:
/// the owner of a directory on the way may have put another directory there in the meantime. kNotPermitted when owner
/// or mode are not those of `looked_at`.
[[nodiscard]] Result<Fd> open_mountpoint(const std::string& path, const config::Ownership& looked_at);

}  // namespace inductorfs::places
