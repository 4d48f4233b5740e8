// SPDX-License-Identifier: Apache-2.0
#include "fuzz_target.h"
#include "inductorfs/layout/start_list.h"

namespace layout = inductorfs::layout;
namespace fuzz = inductorfs::fuzz;

/// A start list as it comes from the cluster.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto keys = layout::start_list_keys(fuzz::view(data, size));
  if (!keys) return 0;
  INDUCTORFS_CHECK(keys->size() <= layout::kStartListKeys);
  for (const layout::StartKey& one : *keys) INDUCTORFS_CHECK(!one.key.empty() && one.key.front() != '/');
  INDUCTORFS_CHECK(layout::start_list_text(*keys) == fuzz::view(data, size));
  return 0;
}
