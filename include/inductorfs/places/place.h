// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"
#include "inductorfs/places/own_mounts.h"

/// Directories outside the mount that root makes for --also, below directories that other users may write to.
namespace inductorfs::places {

struct PlaceUser {
  uid_t uid = 0;
  gid_t gid = 0;
};

struct Place {
  Fd fd;                              ///< O_PATH
  std::optional<PlaceUser> user;      ///< the user of `torchinductor_<user>`, whose jobs look there
  std::optional<MountEntry> covered;  ///< the inductorfs mount that is there already, dead or alive
};

/// Opens the directory `path`, and makes the missing part of it with mode 0755. Every name on the way is opened in its
/// directory, without following it, and judged by its descriptor.
///
/// Other users must not be able to lead root astray: each directory must belong to root and be closed to others, or be
/// sticky; only `torchinductor_<user>` and the directories below it may belong to that user, and are made as that user.
/// Symbolic links are followed only when they belong to root or to this user. An ordinary user may go through any
/// directory. kNotPermitted names the directory in the way; kBusy means that an inductorfs mount is on the way.
[[nodiscard]] Result<Place> make_place(const std::string& path);

/// Opens what is at `path` by the same walk, and makes nothing.
[[nodiscard]] Result<Place> find_place(const std::string& path);

/// Checks whether root may keep files of its own there: each directory of `path` that exists must belong to root, and
/// must not be writable for everybody unless it is sticky. A group may have the right to write: /var/log has such a
/// group on some systems. Always a success for an ordinary user.
[[nodiscard]] Result<void> check_own_place(const std::string& path);

/// Opens the parent directory of `path` by the same walk, and makes nothing.
[[nodiscard]] Result<Fd> open_parent(const std::string& path);

}  // namespace inductorfs::places
