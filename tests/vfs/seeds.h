// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

namespace inductorfs::testing {

/// INDUCTORFS_MODEL_SEEDS: how many runs of each kind; a seed's run takes some seconds, in which it waits.
inline uint32_t seeds() {
  const char* text = std::getenv("INDUCTORFS_MODEL_SEEDS");
  return text != nullptr ? static_cast<uint32_t>(std::stoul(text)) : 3;
}

}  // namespace inductorfs::testing
