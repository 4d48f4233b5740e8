// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace inductorfs::remote {

/// Larger blobs have little in common with others that they have not in themselves.
inline constexpr uint64_t kGatheredBlobLimit = uint64_t{768} << 10;

/// What Remote::gather() did.
struct GatherReport {
  uint64_t blobs = 0;         ///< that are members of a solid block now and were not before
  uint64_t blocks = 0;        ///< that were written
  uint64_t bytes_before = 0;  ///< in the cluster, of these blobs
  uint64_t bytes_after = 0;   ///< of their blocks, and of what is left of them
};

}  // namespace inductorfs::remote
