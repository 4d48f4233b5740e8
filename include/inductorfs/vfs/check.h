// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "inductorfs/store/check.h"

/// Whether the local files of a mount are sound (`inductorfs check`).
namespace inductorfs::vfs {

struct CheckedView {
  uint64_t files = 0;
  uint64_t sealed = 0;
};

/// Holds every sealed file against its seal. Private files have nothing to be held against. `name` is the directory
/// (FileSystemOptions::directory) in the store's; that there is none is sound. `repair`: a sealed file with other bytes
/// is removed, as a start after a host crash does.
[[nodiscard]] Result<CheckedView> check(const std::string& directory, const std::string& name,
                                        const store::CheckedStore& store, bool repair, store::Findings& findings);

}  // namespace inductorfs::vfs
