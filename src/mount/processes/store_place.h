// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "inductorfs/base/result.h"

/// The directory of --store while a mount uses it: others can rename it, remove it, fill its disk or stop its writes.
/// Safe for concurrent use; each call asks the disk once.
namespace inductorfs::mount {

/// Returns where the store is whose lock an earlier worker held: `named`, or where it was moved since. `lock`: that
/// lock, or -1. kNotFound when it was removed, or another one lies there: its files and its queue are this mount's.
[[nodiscard]] Result<std::string> place_of_store(int lock, const std::string& named);

/// Returns where the store is on the host that a worker's tree shows at `named`: it was Settings::store_root on its
/// disk when the mount began, and may have been moved. `named` where there is no tree.
[[nodiscard]] std::string path_on_host(const std::string& named, const std::string& root);

/// Says that the store was moved, or removed under the mount, with a remedy; else empty.
[[nodiscard]] std::string place_trouble(int lock, const std::string& named, const std::string& root);

/// Says what keeps the store from being written to, with a remedy, where the disk tells without a write; else empty.
[[nodiscard]] std::string writing_trouble(const std::string& store);

/// Says that the disk has no room for what jobs write, or less than `floor`, below which nothing is fetched; else
/// empty. `takes_no_more`: a write has found none, which the disk does not tell of a quota.
[[nodiscard]] std::string space_trouble(const std::string& store, uint64_t floor, bool takes_no_more);

/// Refuses a store whose file system keeps no extended attributes, with kInvalid, for a mount that begins. The
/// directory may not be made yet.
[[nodiscard]] Result<void> refuse_without_marks(const std::string& store);

/// Writes a block and takes it back. Errors are the disk's: kNoSpace, kReadOnly, kInternal.
[[nodiscard]] Result<void> try_to_write(const std::string& store);

}  // namespace inductorfs::mount
