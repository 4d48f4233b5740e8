// SPDX-License-Identifier: Apache-2.0
#include "catalog/sweeper.h"

#include <optional>
#include <utility>

#include "catalog/backoff.h"
#include "inductorfs/base/activity.h"
#include "inductorfs/base/log.h"

namespace inductorfs::catalog {
namespace {

/// A million entries take about a minute.
constexpr Milliseconds kSweepPatience{600'000};

}  // namespace

void Sweeper::run() {
  Backoff jitter;
  // Not all mounts of a rack at once, and none right after its start.
  const auto next_due = [&] {
    return std::chrono::steady_clock::now() + jitter.jittered(parts_.options.sweep_interval);
  };
  SteadyTime due = next_due();
  while (!parts_.stopping) {
    const auto called = [](const State& state) {
      return state.stopping || !state.wanted.empty() || !state.starts.empty();
    };
    struct Work {
      std::set<remote::ScopeId> wanted;
      std::optional<Gatherer::Start> start;
    };
    const Work work = state_.wait_until(due, called, [](State& state) {
      Work taken{std::exchange(state.wanted, {}), std::nullopt};
      if (!state.starts.empty()) {
        taken.start = std::move(state.starts.front());
        state.starts.pop_front();
      }
      return taken;
    });
    for (const auto& scope : work.wanted) sweep(scope, true);
    if (work.start) gatherer_.gather(*work.start);
    if (std::chrono::steady_clock::now() < due) continue;
    due = next_due();
    const auto followed = parts_.tree.read([](const EntryTree& tree) { return tree.scopes().all(); });
    for (const auto& scope : followed) sweep(scope.id, false);
  }
}

void Sweeper::stop() {
  state_.notify_with([](State& state) { state.stopping = true; });
}

void Sweeper::want(const remote::ScopeId& scope) {
  state_.notify_with([&](State& state) { state.wanted.insert(scope); });
}

void Sweeper::gather(Gatherer::Start start) {
  state_.notify_with([&](State& state) {
    if (state.starts.size() < kMostStarts) state.starts.push_back(std::move(start));
  });
}

void Sweeper::sweep(const remote::ScopeId& scope, bool wanted) {
  if (parts_.stopping) return;
  const Activity activity("sweeps a scope");
  auto report = index_->sweep(scope, wanted, Deadline::after(kSweepPatience));
  if (!report || !report->ours) return;  // another mount does it, or this one next time
  log::write(log::Level::kInfo, "catalog.swept",
             {{"scope", scope},
              {"entries", std::to_string(report->looked_at)},
              {"unknown", std::to_string(report->unknown)},
              {"gone", std::to_string(report->gone)},
              {"unused", std::to_string(report->unused)}});
}

}  // namespace inductorfs::catalog
