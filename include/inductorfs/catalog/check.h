// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "inductorfs/store/check.h"

/// Whether a catalog's file is sound (`inductorfs check`).
namespace inductorfs::catalog {

struct CheckedCatalog {
  uint64_t entries = 0;
  uint64_t queued = 0;  ///< groups
};

/// SQLite's own check, then every entry and every queued group: whether it can be read, and whether its blobs are in
/// the store. `name` is the file's in the store's directory; that there is none is sound. `repair`: a damaged file is
/// set aside and made anew with what can be read of its queue, bad rows are removed. Errors: kBusy, kNotSupported (a
/// newer version's), or the disk's.
[[nodiscard]] Result<CheckedCatalog> check(const std::string& directory, const std::string& name,
                                           const store::CheckedStore& store, bool repair, store::Findings& findings);

}  // namespace inductorfs::catalog
