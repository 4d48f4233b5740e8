// SPDX-License-Identifier: Apache-2.0
#include "vfs/sealer.h"

#include <algorithm>

#include "inductorfs/base/thread.h"

namespace inductorfs::vfs {
namespace {

constexpr Milliseconds kRetry{50};
constexpr Milliseconds kRest{1000};
/// A judgement takes one to two seconds, and as long as the deadline of a package where its file system is stuck.
constexpr Milliseconds kJudgementStep{100};
constexpr int kQuietTimesUntilRoom = 5;

}  // namespace

/// It is to be sealed for another reason, and has a pin for that.
void Sealer::forget_wait(State::Timed& waits, NodeId node) {
  const auto found = waits.find(node);
  if (found == waits.end()) return;
  found->second.second.node->pins.fetch_sub(1);  // not the last one
  waits.erase(found);
}

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
  state_.notify_with([&](State& state) {
    forget_wait(state.no_room, item.node->id);
    state.ready.push_back(std::move(item));
  });
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
    forget_wait(state.no_room, id);
    state.quiet.emplace(id, std::make_pair(due, std::move(item)));
  });
}

size_t Sealer::waiting() const {
  return state_.with([](const State& state) {
    return state.ready.size() + state.quiet.size() + state.no_room.size() + state.unjudged.size() +
           (state.working ? 1U : 0U);
  });
}

void Sealer::add_paths(const State::Timed& from, size_t limit, std::vector<std::string>& to) {
  for (const auto& [id, timed] : from) {
    if (to.size() < limit) to.push_back(timed.second.path);
  }
}

std::vector<std::string> Sealer::waiting_paths(size_t limit) const {
  return state_.with([&](const State& state) {
    std::vector<std::string> paths;
    for (const auto& item : state.ready) {
      if (paths.size() < limit) paths.push_back(item.path);
    }
    add_paths(state.quiet, limit, paths);
    for (const auto& [due, item] : state.unjudged) {
      if (paths.size() < limit) paths.push_back(item.path);
    }
    return paths;
  });
}

std::vector<std::string> Sealer::paths_without_room(size_t limit) const {
  return state_.with([&](const State& state) {
    std::vector<std::string> paths;
    add_paths(state.no_room, limit, paths);
    return paths;
  });
}

bool Sealer::drain(Deadline deadline) {
  const auto idle = [](const State& state) {
    return state.ready.empty() && state.quiet.empty() && state.unjudged.empty() && !state.working;
  };
  return state_.wait_until(deadline.at(), idle, idle);
}

bool Sealer::take_due(State& state, SteadyTime now, SealItem& item) {
  if (!state.ready.empty()) {
    item = std::move(state.ready.front());
    state.ready.pop_front();
    return true;
  }
  for (State::Timed* timed : {&state.quiet, &state.no_room}) {
    const auto due =
        std::find_if(timed->begin(), timed->end(), [&](const auto& one) { return one.second.first <= now; });
    if (due == timed->end()) continue;
    item = std::move(due->second.second);
    timed->erase(due);
    return true;
  }
  while (!state.unjudged.empty() && state.unjudged.front().first <= now) {
    item = std::move(state.unjudged.front().second);
    state.unjudged.pop_front();
    if (!state.quiet.contains(item.node->id)) return true;
    item.node->pins.fetch_sub(1);  // written to since: it waits until it is quiet, with another pin
  }
  return false;
}

void Sealer::put_off(State::Timed& to, SealItem item, Milliseconds wait) {
  const NodeId id = item.node->id;
  const auto due = std::chrono::steady_clock::now() + wait;
  if (!to.emplace(id, std::make_pair(due, std::move(item))).second)
    to.at(id).second.node->pins.fetch_sub(1);  // one wait, one pin
}

SteadyTime Sealer::next_due(const State& state) {
  SteadyTime next = std::chrono::steady_clock::now() + kRest;
  for (const auto* waits : {&state.quiet, &state.no_room}) {
    for (const auto& [id, timed] : *waits) next = std::min(next, timed.first);
  }
  return state.unjudged.empty() ? next : std::min(next, state.unjudged.front().first);
}

void Sealer::take_back(State& state, SealItem item, SealOutcome outcome) const {
  if (outcome == SealOutcome::kUnjudged) {
    state.unjudged.emplace_back(std::chrono::steady_clock::now() + kJudgementStep, std::move(item));
    return;
  }
  const bool no_room = outcome == SealOutcome::kNoRoom;
  const bool waits_again = no_room && state.quiet.contains(item.node->id);
  put_off(no_room && !waits_again ? state.no_room : state.quiet, std::move(item),
          no_room ? kQuietTimesUntilRoom * quiet_time_ : kRetry);
}

void Sealer::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    SealItem item;
    const auto [until, added] =
        state_.with([](const State& state) { return std::make_pair(next_due(state), state.quiet_added); });
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
    const SealOutcome outcome = seal_(item);
    const bool later = outcome != SealOutcome::kDone;
    NodePtr done = later ? nullptr : item.node;
    if (done) {
      done->pins.fetch_sub(1);
      unpin_(done);
    }
    state_.notify_with([&](State& state) {
      state.working = false;
      if (later) take_back(state, std::move(item), outcome);
    });
  }
}

}  // namespace inductorfs::vfs
