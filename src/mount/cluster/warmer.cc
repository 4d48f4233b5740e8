// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/mount/warmer.h"

#include <utility>

#include "inductorfs/config/json.h"
#include "mount/cluster/warming.h"

namespace inductorfs::mount {

using config::Json;

Warmer::Warmer(const config::Settings& settings, const Layers& layers) : settings_(settings), layers_(layers) {}
Warmer::~Warmer() = default;

Result<Json> Warmer::step(const control::WarmSelection& selection, Milliseconds slice,
                          const std::function<bool()>& cancelled) {
  if (settings_.remote.empty()) {
    return fail(ErrorCode::kNotSupported, "there is no cluster to fetch from: the mount has no --remote");
  }
  std::unique_ptr<Warming> warming;
  const bool is_ours = state_.with([&](State& state) {
    if (std::exchange(state.busy, true)) return false;
    warming = std::move(state.warming);
    return true;
  });
  if (!is_ours) return fail(ErrorCode::kBusy, "another warm of this mount is under way: wait until it has ended");
  if (!warming || warming->selection() != selection) {
    warming = std::make_unique<Warming>(settings_, layers_, selection);
  }
  const Result<void> done = warming->go_on(Deadline::after(slice), cancelled);
  Json report = warming->report();
  // Nobody will ask for the rest of it: what it has learned would stay in memory.
  const bool ends = !done || warming->is_done() || cancelled();
  state_.with([&](State& state) {
    state.busy = false;
    if (!ends) state.warming = std::move(warming);
  });
  if (!done) return fail(done.error());
  return report;
}

}  // namespace inductorfs::mount
