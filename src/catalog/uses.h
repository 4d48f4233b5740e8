// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unordered_map>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/codec/digest.h"

namespace inductorfs::catalog {

/// Blobs of the cluster that jobs of this host use, so that their lifetime in the cluster is renewed: who finds
/// everything publishes nothing, and what everybody uses must not end because of that. Safe for concurrent use.
class Uses {
 public:
  /// Beyond it, blobs are forgotten, and renewed once more than need be.
  static constexpr size_t kLimit = 200'000;
  static constexpr size_t kBatch = 4'096;

  explicit Uses(Milliseconds interval) : interval_(interval) {}

  /// A blob counts once in an interval. Never blocks.
  void note(const codec::Digest& digest, SteadyTime now);
  /// What was noted and not taken yet, at most kBatch.
  [[nodiscard]] std::vector<codec::Digest> take();

 private:
  struct State {
    std::unordered_map<codec::Digest, SteadyTime> noted;
    std::vector<codec::Digest> waiting;
  };
  const Milliseconds interval_;
  Guarded<State> state_;
};

}  // namespace inductorfs::catalog
