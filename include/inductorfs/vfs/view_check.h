// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "inductorfs/store/store_check.h"

/// Checks whether the local files of a mount are sound (`inductorfs check`).
namespace inductorfs::vfs {

struct CheckedView {
  uint64_t files = 0;
  uint64_t sealed = 0;
};

/// Compares the bytes of every sealed file with its seal; private files have no seal, so they are not compared. `name`
/// is the name of the view's directory (FileSystemOptions::directory) inside the store's `directory`; a view that does
/// not exist is sound. With `repair`, a sealed file whose bytes differ is removed, as a start after a host crash does.
[[nodiscard]] Result<CheckedView> check(const std::string& directory, const std::string& name,
                                        const store::CheckedStore& store, bool repair, store::Findings& findings);

}  // namespace inductorfs::vfs
