// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace inductorfs::remote {

/// What a server says of itself (Remote::probe). Immutable value.
struct ServerFacts {
  std::string version;  ///< empty if the user of a read-only remote may not ask for it
  std::string eviction_policy;
  uint64_t memory_limit = 0;
  /// What an operator should change, one line each; empty when all is well.
  std::vector<std::string> warnings;
};

}  // namespace inductorfs::remote
