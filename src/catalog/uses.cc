// SPDX-License-Identifier: Apache-2.0
#include "uses.h"

#include <algorithm>

namespace inductorfs::catalog {

void Uses::note(const codec::Digest& digest, SteadyTime now) {
  state_.with([&](State& state) {
    const auto [place, added] = state.noted.try_emplace(digest, now);
    if (!added && now - place->second < interval_) return;
    place->second = now;
    state.waiting.push_back(digest);
    if (state.noted.size() > kLimit) state.noted.clear();
    if (state.waiting.size() > kLimit) state.waiting.clear();
  });
}

std::vector<codec::Digest> Uses::take() {
  return state_.with([](State& state) {
    const auto count = static_cast<ptrdiff_t>(std::min(kBatch, state.waiting.size()));
    std::vector<codec::Digest> taken(state.waiting.end() - count, state.waiting.end());
    state.waiting.resize(state.waiting.size() - taken.size());
    return taken;
  });
}

}  // namespace inductorfs::catalog
