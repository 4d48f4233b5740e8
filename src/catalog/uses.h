// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/codec/digest.h"

namespace inductorfs::catalog {

/// The blobs of the cluster that jobs of this host use, so that their lifetime in the cluster is renewed. A host that
/// finds everything publishes nothing, and blobs that all hosts use must not expire because of that.
/// Safe for concurrent use.
class Uses {
 public:
  /// Beyond this number the noted blobs are forgotten; they are then renewed once more than necessary.
  static constexpr size_t kLimit = 200'000;
  static constexpr size_t kBatch = 4'096;

  explicit Uses(Milliseconds interval) : interval_(interval) {}

  /// Notes a use. A blob counts once in an interval. Never blocks.
  void note(const codec::Digest& digest, SteadyTime now) {
    state_.with([&](State& state) {
      const auto [place, added] = state.noted.try_emplace(digest, now);
      if (!added && now - place->second < interval_) return;
      place->second = now;
      state.waiting.push_back(digest);
      if (state.noted.size() > kLimit) state.noted.clear();
      if (state.waiting.size() > kLimit) state.waiting.clear();
    });
  }
  /// Returns at most kBatch blobs that were noted and not taken yet.
  [[nodiscard]] std::vector<codec::Digest> take() {
    return state_.with([](State& state) {
      const auto count = static_cast<ptrdiff_t>(std::min(kBatch, state.waiting.size()));
      std::vector<codec::Digest> taken(state.waiting.end() - count, state.waiting.end());
      state.waiting.resize(state.waiting.size() - taken.size());
      return taken;
    });
  }

 private:
  struct State {
    std::unordered_map<codec::Digest, SteadyTime> noted;
    std::vector<codec::Digest> waiting;
  };
  const Milliseconds interval_;
  Guarded<State> state_;
};

}  // namespace inductorfs::catalog
