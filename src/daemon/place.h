// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"

/// Directories outside of the mount that are made for --also, as root, below directories that others may write to.
namespace inductorfs::daemon {

struct MadeDirectory {
  Fd fd;                          ///< O_PATH
  std::vector<std::string> made;  ///< what did not exist before, outermost first
};

/// Opens the directory `path`, making what is missing of it with mode 0755. What is made belongs to the owner of the
/// directory around it; in one that everybody writes to (/tmp), `torchinductor_<user>` belongs to that user and all
/// else to this process. Symbolic links in such a directory are followed only when they belong to root or to this user:
/// otherwise anybody could lead root elsewhere.
[[nodiscard]] Result<MadeDirectory> make_place(const std::string& path);

/// Removes, innermost first, those of `made` that are empty.
void remove_made(const std::vector<std::string>& made);

}  // namespace inductorfs::daemon
