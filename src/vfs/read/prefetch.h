// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "inductorfs/base/guarded.h"
#include "inductorfs/catalog/catalog.h"
#include "inductorfs/vfs/file_system.h"
#include "vfs/read/fetcher.h"

namespace inductorfs::vfs {

/// Guesses what will be asked for next, and has it fetched in the background. Never blocks; does nothing when
/// FileSystemOptions::prefetch_bytes is 0. Safe for concurrent use.
class Prefetch {
 public:
  /// All outlive it.
  Prefetch(const FileSystemOptions& options, catalog::Catalog& catalog, Fetcher& fetcher)
      : options_(options), catalog_(catalog), fetcher_(fetcher) {}

  /// The entries of a directory that somebody looks into.
  void directory(const std::string& canonical);
  /// What the writer of this entry published within the same minutes: one start of a job made it.
  void companions(const codec::Entry& entry);
  /// The newest entries of all, after the mount.
  void newest();

 private:
  const FileSystemOptions& options_;
  catalog::Catalog& catalog_;
  Fetcher& fetcher_;
  /// Writer and time of what was asked for lately.
  Guarded<std::vector<std::pair<std::string, int64_t>>> windows_;
};

}  // namespace inductorfs::vfs
