// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <list>
#include <memory>
#include <string>
#include <utility>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/codec/digest.h"

namespace inductorfs::remote {

/// The solid blocks (codec/solid_block.h) that were fetched last: members that are asked for one by one cost one fetch
/// of their block. It holds kMost blocks of up to codec::kSolidBlockLimit bytes. Safe for concurrent use.
class BlockCache {
 public:
  using Block = std::shared_ptr<const std::string>;
  static constexpr size_t kMost = 16;
  static constexpr Milliseconds kUnusedFor{30'000};

  /// Returns the block, or nullptr.
  [[nodiscard]] Block find(const codec::Digest& digest) {
    return kept_.with([&](std::list<Kept>& kept) -> Block {
      const auto found = std::ranges::find(kept, digest, &Kept::digest);
      if (found == kept.end()) return nullptr;
      found->used = std::chrono::steady_clock::now();
      kept.splice(kept.begin(), kept, found);
      return found->block;
    });
  }
  /// Keeps a block whose bytes have this digest, in place of the one that was unused for the longest time.
  void keep(const codec::Digest& digest, Block block) {
    kept_.with([&](std::list<Kept>& kept) {
      std::erase_if(kept, [&](const Kept& one) { return one.digest == digest; });
      kept.push_front({digest, std::move(block), std::chrono::steady_clock::now()});
      if (kept.size() > kMost) kept.pop_back();
    });
  }
  /// Gives the memory back of what nobody has asked for since kUnusedFor.
  void drop_unused(SteadyTime now) {
    kept_.with([&](std::list<Kept>& kept) {
      std::erase_if(kept, [&](const Kept& one) { return now - one.used >= kUnusedFor; });
    });
  }

 private:
  struct Kept {
    codec::Digest digest;
    Block block;
    SteadyTime used;
  };
  Guarded<std::list<Kept>> kept_;  ///< the one that was used last comes first
};

}  // namespace inductorfs::remote
