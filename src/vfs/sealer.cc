// SPDX-License-Identifier: Apache-2.0
#include "vfs/sealer.h"

#include <algorithm>

#include "inductorfs/base/thread.h"

namespace inductorfs::vfs {
namespace {

constexpr Milliseconds kRetry{50};
constexpr Milliseconds kRest{1000};

}  // namespace

Sealer::Sealer(Seal seal, Unpin unpin, Milliseconds quiet_time)
    : seal_(std::move(seal)), unpin_(std::move(unpin)), quiet_time_(quiet_time) {}

Sealer::~Sealer() { stop(); }

void Sealer::start() {
  thread_ = start_thread("seal", [this](const std::stop_token& stop) { run(stop); });
}

void Sealer::stop() {
  state_.notify_with([](State& state) { state.stopped = true; });
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
}

void Sealer::add(SealItem item) {
  item.node->pins.fetch_add(1);
  state_.notify_with([&](State& state) { state.ready.push_back(std::move(item)); });
}

void Sealer::add_quiet(SealItem item) {
  const SteadyTime due = std::chrono::steady_clock::now() + quiet_time_;
  state_.notify_with([&](State& state) {
    const NodeId id = item.node->id;
    ++state.quiet_added;
    if (const auto known = state.quiet.find(id); known != state.quiet.end()) {
      known->second.first = due;
      known->second.second.path = item.path;
      return;
    }
    item.node->pins.fetch_add(1);
    state.quiet.emplace(id, std::make_pair(due, std::move(item)));
  });
}

size_t Sealer::waiting() const {
  return state_.with(
      [](const State& state) { return state.ready.size() + state.quiet.size() + (state.working ? 1U : 0U); });
}

std::vector<std::string> Sealer::waiting_paths(size_t limit) const {
  return state_.with([&](const State& state) {
    std::vector<std::string> paths;
    for (const auto& item : state.ready) {
      if (paths.size() < limit) paths.push_back(item.path);
    }
    for (const auto& [id, timed] : state.quiet) {
      if (paths.size() < limit) paths.push_back(timed.second.path);
    }
    return paths;
  });
}

bool Sealer::drain(Deadline deadline) {
  const auto idle = [](const State& state) { return state.ready.empty() && state.quiet.empty() && !state.working; };
  return state_.wait_until(deadline.at(), idle, idle);
}

bool Sealer::take_due(State& state, SteadyTime now, SealItem& item) {
  if (!state.ready.empty()) {
    item = std::move(state.ready.front());
    state.ready.pop_front();
    return true;
  }
  for (auto it = state.quiet.begin(); it != state.quiet.end(); ++it) {
    if (it->second.first > now) continue;
    item = std::move(it->second.second);
    state.quiet.erase(it);
    return true;
  }
  return false;
}

void Sealer::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    SealItem item;
    const auto [until, added] = state_.with([](const State& state) {
      SteadyTime next = std::chrono::steady_clock::now() + kRest;
      for (const auto& [id, timed] : state.quiet) next = std::min(next, timed.first);
      return std::make_pair(next, state.quiet_added);
    });
    const bool has_item = state_.wait_until(
        until,
        [seen = added](const State& state) {
          return state.stopped || !state.ready.empty() || state.quiet_added != seen;
        },
        [&](State& state) {
          if (state.stopped) return false;
          return state.working = take_due(state, std::chrono::steady_clock::now(), item);
        });
    if (!has_item) continue;
    const bool later = seal_(item) == SealOutcome::kLater;
    NodePtr done = later ? nullptr : item.node;
    if (done) {
      done->pins.fetch_sub(1);
      unpin_(done);
    }
    state_.notify_with([&](State& state) {
      state.working = false;
      if (!later) return;
      const NodeId id = item.node->id;
      const auto due = std::chrono::steady_clock::now() + kRetry;
      if (!state.quiet.emplace(id, std::make_pair(due, std::move(item))).second) {
        state.quiet.at(id).second.node->pins.fetch_sub(1);  // one wait, one pin
      }
    });
  }
}

}  // namespace inductorfs::vfs
