// SPDX-License-Identifier: Apache-2.0
#include "block_cache.h"

#include <algorithm>

namespace inductorfs::remote {

BlockCache::Block BlockCache::find(const codec::Digest& digest) {
  return kept_.with([&](std::list<Kept>& kept) -> Block {
    const auto found = std::ranges::find(kept, digest, &Kept::digest);
    if (found == kept.end()) return nullptr;
    found->used = std::chrono::steady_clock::now();
    kept.splice(kept.begin(), kept, found);
    return found->block;
  });
}

void BlockCache::keep(const codec::Digest& digest, Block block) {
  kept_.with([&](std::list<Kept>& kept) {
    std::erase_if(kept, [&](const Kept& one) { return one.digest == digest; });
    kept.push_front({digest, std::move(block), std::chrono::steady_clock::now()});
    if (kept.size() > kMost) kept.pop_back();
  });
}

void BlockCache::drop_unused(SteadyTime now) {
  kept_.with([&](std::list<Kept>& kept) {
    std::erase_if(kept, [&](const Kept& one) { return now - one.used >= kUnusedFor; });
  });
}

}  // namespace inductorfs::remote
