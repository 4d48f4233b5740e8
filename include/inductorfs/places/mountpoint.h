// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"
#include "inductorfs/config/ownership.h"
#include "inductorfs/places/bind.h"
#include "inductorfs/places/own_mounts.h"

/// The directory that a mount is to cover, which the dead mount of a killed daemon may cover until the new one is
/// there.
namespace inductorfs::places {

/// Returns the source of the file system at the root of the tree that serving processes live in (mount/worker_tree.h).
/// It names the mount namespace of the caller, who makes the tree: in the tree the mount itself is not seen.
[[nodiscard]] std::string tree_source();

/// Says whether `path` is a mount whose daemon is gone (ENOTCONN). A child process with a deadline asks the kernel,
/// because every process that touches a mount hangs while its daemon hangs.
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

/// Makes sure that nothing but one dead mount covers the directory; kBusy when anything living is mounted there. The
/// dead mount stays, so that jobs get ENOTCONN until the new one is there and never write into the directory, unless an
/// ordinary user's mount cannot tell (ENOTCONN) that it is dead; then it is detached, and the result is true.
[[nodiscard]] Result<bool> free_mountpoint(const std::string& path);
/// Detaches the dead mounts at `path`, best effort, and returns whether there was one: the last one that was replaced
/// stays below the new one where the kernel cannot exchange them (fuse::mount()).
bool detach_dead_mounts(const std::string& path);

/// Refuses with kInvalid a `path` that lies, or would be made, in an inductorfs mount: a mount in a mount, or a store
/// that a mount serves, waits for itself. `what` is the path in the words of the command line.
[[nodiscard]] Result<void> check_outside_of_mounts(const std::string& what, const std::string& path);
/// The same for the mountpoint, which a dead mount may cover.
[[nodiscard]] Result<void> check_mountpoint_outside_of_mounts(const std::string& mountpoint);

/// Refuses with kInvalid a directory on a file system that the kernel makes up (/proc, /sys), or below a file, where
/// nothing can be stored. `what` is the path in the words of the command line.
[[nodiscard]] Result<void> check_can_hold_files(const std::string& what, const std::string& path);

/// Returns an absolute path with symbolic links followed. kNotFound and kNotDirectory name the remedy. For root a link
/// of another user leads only to a directory of that user; else kNotPermitted.
[[nodiscard]] Result<std::string> resolve_mountpoint(const std::string& path);
/// Owner and mode that a mount over the directory shows, also below a dead mount: those of the directory, or what they
/// were before root's first mount there (close_below()). An ordinary user cannot look there: what the kernel knows
/// of the mount's root is the same. When the kernel knows nothing, nobody has used that mount, and it is detached.
[[nodiscard]] Result<config::Ownership> ownership_of(const std::string& mountpoint);

/// The directory to mount on, as it is when everything else is ready for the mount.
struct Mountpoint {
  Covered at;
  Fd dead;                   ///< the root of the dead mount that still covers it, opened with O_PATH
  std::string device;        ///< MountEntry::device of that mount
  bool uncovered = false;    ///< a dead mount was detached, so jobs may write there until the new one is there
  bool was_covered = false;  ///< by a mount of root, so what is in it was written while nothing was mounted
};

/// Opens the directory; `path` is one that resolve_mountpoint() returned. A dead mount stays on it if this is root, and
/// is detached if not, because fusermount3 mounts nothing where one is. For root: the owner of a directory on the way
/// may have put another directory there in the meantime. kNotPermitted when owner or mode are not those of `looked_at`.
[[nodiscard]] Result<Mountpoint> open_mountpoint(const std::string& path, const config::Ownership& looked_at);
/// After root has mounted: takes the covered directory from everybody else (owner root, mode 0555), so that nobody
/// writes there while nothing is mounted, and keeps `shown` in an attribute of it for the next mount. Best effort.
void close_below(const Mountpoint& place, const std::string& path, const config::Ownership& shown);
/// Moves what jobs have written into the covered directory to a directory beside it. Returns what a person should know
/// about that; empty when there was nothing.
[[nodiscard]] std::string move_left_over(const Mountpoint& place, const std::string& path);

}  // namespace inductorfs::places
