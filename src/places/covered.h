// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"
#include "inductorfs/config/ownership.h"

/// The directory below a mount of root. From its first mount on it is root's and nobody writes to it, so that nothing
/// falls below the mount while nobody serves. What it was before is what each mount shows: an extended attribute of the
/// directory, which root alone can set, keeps that.
namespace inductorfs::places {

/// Puts owner and mode that a mount over `directory` shows into `found`, which is what stat(2) says of it: what is kept
/// of it, unless somebody has changed the directory since. Returns whether it has been below a mount of root.
bool show_kept(const Fd& directory, struct stat& found);

/// Keeps `shown` and takes the directory from everybody but root. An error where the file system has no such attribute,
/// or nobody may change the directory; then it is as before.
[[nodiscard]] Result<void> close_covered(const Fd& directory, const config::Ownership& shown);

}  // namespace inductorfs::places
