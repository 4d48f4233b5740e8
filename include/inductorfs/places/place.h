// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"
#include "inductorfs/places/mount_table.h"

/// Directories outside of the mount that are made for --also, as root, below directories that others may write to.
namespace inductorfs::places {

struct PlaceUser {
  uid_t uid = 0;
  gid_t gid = 0;
};

struct Place {
  Fd fd;                              ///< O_PATH
  std::vector<std::string> made;      ///< what did not exist before, outermost first, without symbolic links
  std::optional<PlaceUser> user;      ///< who looks there: that of `torchinductor_<user>`
  std::optional<MountEntry> covered;  ///< the mount of ours that is there already, dead or alive
};

/// Opens the directory `path`, making what is missing of it with mode 0755. Every name on the way is opened in its
/// directory, without following it, and judged by descriptor.
///
/// Root is led nowhere by others: each directory belongs to root and is closed to others, or sticky; only
/// `torchinductor_<user>` and what is below it may be that user's, and are made as that user. Symbolic links are
/// followed only when they are root's or this user's. An ordinary user may go through any directory. kNotPermitted
/// names what is in the way; kBusy: a mount of ours is on the way.
[[nodiscard]] Result<Place> make_place(const std::string& path);

/// Removes, innermost first, those of `made` that are empty, by the same walk.
void remove_made(const std::vector<std::string>& made);

/// Whether root may keep files of its own there: each directory of `path` that exists belongs to root and not everybody
/// may write to it, unless it is sticky. A group may: /var/log is one's on some systems. Success for an ordinary user.
[[nodiscard]] Result<void> check_own_place(const std::string& path);

/// The directory of `path`, by the same walk, and nothing is made.
[[nodiscard]] Result<Fd> open_parent(const std::string& path);
[[nodiscard]] std::string name_of(const std::string& path);

}  // namespace inductorfs::places
