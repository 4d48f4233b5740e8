// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "fingerprint/facts/facts.h"
#include "fingerprint/packages/package_keys.h"

/// The functions of the module on this host, without a memory or with one in a file.
namespace inductorfs::fingerprint {

[[nodiscard]] inline Result<std::string> torch_key(const std::string& directory,
                                                   const std::vector<std::string>& suffixes) {
  KeyMemory nothing("");
  return torch_key(InRoot::host(), directory, suffixes, nothing);
}
[[nodiscard]] inline Result<std::string> triton_key(const std::string& directory,
                                                    const std::vector<std::string>& suffixes,
                                                    const std::string& cache_file) {
  KeyMemory memory(cache_file);
  auto key = triton_key(InRoot::host(), directory, suffixes, memory);
  if (key) (void)memory.save();  // a test that needs it looks for it
  return key;
}

}  // namespace inductorfs::fingerprint
