// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "inductorfs/store/store_check.h"

/// Checks whether a catalog's file is sound (`inductorfs check`).
namespace inductorfs::catalog {

struct CheckedCatalog {
  uint64_t entries = 0;
  uint64_t queued = 0;  ///< groups
};

/// Runs SQLite's own check, then reads every entry and every queued group and looks for their blobs in the store.
/// `name` is the name of the catalog's file in the store's `directory`; a file that does not exist is sound. With
/// `repair`, a damaged file is set aside and made anew with what can be read of its queue, and bad rows are removed.
/// Errors: kBusy, kNotSupported (the file of a newer version), or the disk's.
[[nodiscard]] Result<CheckedCatalog> check(const std::string& directory, const std::string& name,
                                           const store::CheckedStore& store, bool repair, store::Findings& findings);

}  // namespace inductorfs::catalog
