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
  /// All three must outlive this object.
  Prefetch(const FileSystemOptions& options, catalog::Catalog& catalog, Fetcher& fetcher)
      : options_(options), catalog_(catalog), fetcher_(fetcher) {}

  /// Fetches the entries of a directory in which a name was looked up.
  void directory(const layout::Name& directory);
  /// Fetches what the writer of this entry published within the same minutes, because one start of a job made it.
  void companions(const codec::Entry& entry);
  /// Fetches the newest entries of all, after the mount.
  void newest();

 private:
  const FileSystemOptions& options_;
  catalog::Catalog& catalog_;
  Fetcher& fetcher_;
  /// Writer and time of the entries whose companions were fetched lately.
  Guarded<std::vector<std::pair<std::string, int64_t>>> windows_;
};

}  // namespace inductorfs::vfs
