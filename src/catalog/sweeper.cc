// SPDX-License-Identifier: Apache-2.0
#include "sweeper.h"

#include <utility>

#include "backoff.h"
#include "inductorfs/base/activity.h"
#include "inductorfs/base/log.h"

namespace inductorfs::catalog {
namespace {

/// A million entries take about a minute.
constexpr Milliseconds kSweepPatience{600'000};

}  // namespace

void Sweeper::run() {
  Backoff jitter;
  while (!parts_.stopping) {
    // Not all mounts of a rack at once, and none right after its start.
    const auto due = std::chrono::steady_clock::now() + jitter.jittered(parts_.options.sweep_interval);
    const auto called = [](const State& state) { return state.stopping || !state.wanted.empty(); };
    auto wanted = state_.wait_until(due, called, [](State& state) { return std::exchange(state.wanted, {}); });
    for (const auto& scope : wanted) sweep(scope, true);
    if (!wanted.empty()) continue;
    const auto followed = parts_.tree.read([](const EntryTree& tree) { return tree.followed(); });
    for (const auto& scope : followed) sweep(scope.id, false);
  }
}

void Sweeper::stop() {
  state_.notify_with([](State& state) { state.stopping = true; });
}

void Sweeper::want(const remote::ScopeId& scope) {
  state_.notify_with([&](State& state) { state.wanted.insert(scope); });
}

void Sweeper::sweep(const remote::ScopeId& scope, bool wanted) {
  if (parts_.stopping) return;
  const Activity activity("sweeps a scope");
  auto report = remote_->sweep(scope, wanted, Deadline::after(kSweepPatience));
  if (!report || !report->ours) return;  // another mount does it, or this one next time
  log::write(log::Level::kInfo, "catalog.swept",
             {{"scope", scope},
              {"entries", std::to_string(report->looked_at)},
              {"unknown", std::to_string(report->unknown)},
              {"gone", std::to_string(report->gone)},
              {"unused", std::to_string(report->unused)}});
}

}  // namespace inductorfs::catalog
