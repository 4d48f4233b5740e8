// SPDX-License-Identifier: Apache-2.0
#include "tail.h"

#include <algorithm>
#include <utility>

#include "inductorfs/base/log.h"

namespace inductorfs::catalog {
namespace {

/// A read that gets no answer holds stop() up for this long. A scope whose snapshot takes longer is given twice the
/// time after each timeout.
constexpr Milliseconds kReadPatience{2'000};
constexpr Milliseconds kReadPatienceMost{120'000};
/// Reading resumes at least this often, for changes whose announcement was lost.
constexpr Milliseconds kWaitMost{5'000};
/// Steps of one scope before the next one has its turn.
constexpr int kStepsPerTurn = 1'000;

}  // namespace

Tail::Tail(Parts& parts, std::map<remote::ScopeId, remote::Position> positions) : parts_(parts) {
  for (const auto& id : parts.options.scopes) {
    Followed scope;
    scope.id = id;
    scope.index = static_cast<Tree::ScopeIndex>(followed_.size());
    scope.position = positions[id];
    scope.patience = kReadPatience;
    followed_.push_back(std::move(scope));
  }
  state_.with([&](State& state) {
    state.positions = std::move(positions);
    state.synced = followed_.empty();
  });
}

void Tail::run() {
  while (!parts_.stopping) {
    for (auto& scope : followed_) {
      if (parts_.stopping) return;
      if (std::chrono::steady_clock::now() >= scope.due) read_to_end(scope);
    }
    note_synced();
    rest();
  }
}

void Tail::stop() {
  state_.notify_with([](State& state) { state.stopping = true; });
}

bool Tail::wait_synced(Deadline deadline) {
  return state_.wait_until(
      deadline.at(), [](const State& state) { return state.synced || state.stopping; },
      [](const State& state) { return state.synced; });
}

bool Tail::synced() const {
  return state_.with([](const State& state) { return state.synced; });
}

remote::Position Tail::position(const remote::ScopeId& scope) const {
  return state_.with([&](const State& state) {
    auto found = state.positions.find(scope);
    return found == state.positions.end() ? remote::Position{} : found->second;
  });
}

void Tail::read_to_end(Followed& scope) {
  for (int step = 0; step < kStepsPerTurn && !parts_.stopping; ++step) {
    auto delta = parts_.remote.read_changes(scope.id, scope.position, Deadline::after(scope.patience));
    if (!delta) return failed(scope, delta.error());
    succeeded(scope);
    const bool quiet = delta->set.empty() && delta->removed.empty() && delta->position == scope.position;
    // What the disk had without a position may be of another history: the first answer replaces it. A scope that
    // nobody has published in may answer an empty snapshot each time.
    const bool first = !scope.synced && scope.position == remote::Position{};
    const bool again = quiet && scope.synced;
    if (delta->reset && !again) parts_.metrics.resets.add();
    delta->reset |= first;
    if (!quiet || (delta->reset && !again)) apply(scope, std::move(*delta));
    if (quiet) {
      scope.synced = true;
      return;
    }
  }
}

void Tail::failed(Followed& scope, const Error& error) {
  parts_.metrics.tail_errors.add();
  if (error.code() == ErrorCode::kTimedOut) scope.patience = std::min(scope.patience * 2, kReadPatienceMost);
  scope.failing = true;
  scope.due = std::chrono::steady_clock::now() + scope.backoff.next();
  if (!parts_.stopping) {
    log::write_limited(log::Level::kWarning, "catalog_tail", {{"scope", scope.id}, {"error", error.to_string()}});
  }
}

void Tail::succeeded(Followed& scope) {
  scope.patience = kReadPatience;
  scope.backoff.reset();
  if (!std::exchange(scope.failing, false)) return;
  parts_.durable.notify_with([](Durable& durable) {
    durable.reachable_again = true;
    ++durable.wakes;
  });
}

void Tail::note_synced() {
  if (!std::ranges::all_of(followed_, &Followed::synced)) return;
  state_.notify_with([](State& state) { state.synced = true; });
}

void Tail::pause_until(SteadyTime when) {
  state_.wait_until(
      when, [](const State& state) { return state.stopping; }, [](const State&) {});
}

void Tail::rest() {
  const auto now = std::chrono::steady_clock::now();
  // Never below poll_interval, however often the cluster announces something.
  pause_until(now + wait_backoff_.jittered(parts_.options.poll_interval * 4 / 3));
  SteadyTime wake = now + wait_backoff_.jittered(kWaitMost);
  std::vector<std::pair<remote::ScopeId, remote::Position>> followed;
  for (const auto& scope : followed_) {
    if (scope.failing) {
      wake = std::min(wake, scope.due);
    } else {
      followed.emplace_back(scope.id, scope.position);
    }
  }
  if (parts_.stopping || followed.empty()) return pause_until(wake);
  const Milliseconds most = Deadline(wake).left();
  if (most.count() == 0) return;
  auto waited = parts_.remote.wait_for_changes(followed, most, [this] { return parts_.stopping.load(); });
  if (waited) return wait_backoff_.reset();
  parts_.metrics.tail_errors.add();
  pause_until(std::chrono::steady_clock::now() + wait_backoff_.next());
}

}  // namespace inductorfs::catalog
