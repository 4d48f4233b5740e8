// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "inductorfs/layout/layout.h"
#include "inductorfs/vfs/types.h"

namespace inductorfs::ledger {

/// What became of the keys of one family, each counted once for each job, and of their bytes.
struct FamilyTally {
  uint64_t local = 0;    ///< keys that were files of this host
  uint64_t cluster = 0;  ///< keys that the cluster had
  std::map<vfs::UseKind, uint64_t> missed;
  uint64_t made = 0;       ///< keys that programs made
  uint64_t published = 0;  ///< of these
  uint64_t fetched = 0;    ///< files whose bytes a request waited for
  uint64_t bytes = 0;      ///< of these
  [[nodiscard]] uint64_t misses() const;
  void add(const FamilyTally& other);
};

struct Tally {
  std::map<layout::Family, FamilyTally> families;
  std::chrono::nanoseconds waited{0};  ///< for bytes, by all requests together
  void add(const Tally& other);
};

/// The request that waited longest for bytes. The path is one that a user chose.
struct Slowest {
  std::string path;
  std::chrono::nanoseconds waited{0};
};

}  // namespace inductorfs::ledger
