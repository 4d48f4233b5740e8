// SPDX-License-Identifier: Apache-2.0
#include "vfs/write/seal_queue.h"

#include <algorithm>
#include <utility>

#include "inductorfs/base/activity.h"
#include "inductorfs/base/thread.h"
#include "vfs/tree/branch_paths.h"

namespace inductorfs::vfs {
namespace {

constexpr Milliseconds kRetry{50};
constexpr Milliseconds kRest{1000};
/// A judgement takes one to two seconds, and as long as the deadline of a package where its file system is stuck.
constexpr Milliseconds kJudgementStep{100};
constexpr int kQuietTimesUntilRoom = 5;
/// A file that is renamed again and again waits under so many names, and then until it is quiet, under its last.
constexpr size_t kNamesOfOne = 16;

}  // namespace

/// It is to be sealed for another reason, and has a pin for that.
void SealQueue::forget_wait(State::Timed& waits, NodeId node) {
  const auto found = waits.find(node);
  if (found == waits.end()) return;
  found->second.second.node->pins.fetch_sub(1);  // not the last one
  waits.erase(found);
}

SealQueue::SealQueue(Seal seal, Unpin unpin, Milliseconds quiet_time)
    : seal_(std::move(seal)), unpin_(std::move(unpin)), quiet_time_(quiet_time) {}

SealQueue::~SealQueue() { stop(); }

void SealQueue::start() {
  thread_ = start_thread("seal", [this](const std::stop_token& stop) { run(stop); });
}

void SealQueue::stop() {
  state_.notify_with([](State& state) { state.stopped = true; });
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
}

/// With its pin, which is not the last one when the same is queued already.
void SealQueue::add_ready(State& state, SealItem item) {
  // One without a sign must not take the place of one that has it.
  if (!item.has_no_sign && !state.queued[item.node->id].insert(item.path).second) {
    item.node->pins.fetch_sub(1);
    return;
  }
  const uid_t user = item.node->owner;
  state.ready[user].push_back(std::move(item));
}

void SealQueue::add(SealItem item) {
  item.node->pins.fetch_add(1);
  state_.notify_with([&](State& state) {
    forget_wait(state.no_room, item.node->id);
    const auto names = state.queued.find(item.node->id);
    if (names != state.queued.end() && names->second.size() >= kNamesOfOne) {
      add_quiet(state, std::move(item));
    } else {
      add_ready(state, std::move(item));
    }
  });
}

void SealQueue::add_quiet(SealItem item) {
  item.node->pins.fetch_add(1);
  state_.notify_with([&](State& state) { add_quiet(state, std::move(item)); });
}

/// A file waits once, with one pin. If one of the two has a sign, what waits has it: else the sign would be forgotten.
void SealQueue::join(SealItem& waits, const SealItem& item) {
  waits.has_no_sign = waits.has_no_sign && item.has_no_sign;
  item.node->pins.fetch_sub(1);
}

/// With its pin.
void SealQueue::add_quiet(State& state, SealItem item) const {
  const SteadyTime due = std::chrono::steady_clock::now() + quiet_time_;
  const NodeId id = item.node->id;
  ++state.quiet_added;
  if (const auto known = state.quiet.find(id); known != state.quiet.end()) {
    known->second.first = due;
    known->second.second.path = item.path;
    return join(known->second.second, item);
  }
  forget_wait(state.no_room, id);
  item.waits_since = due - quiet_time_;
  state.quiet.emplace(id, std::make_pair(due, std::move(item)));
}

size_t SealQueue::waiting() const {
  return state_.with([](const State& state) {
    size_t count = state.quiet.size() + state.no_room.size() + state.unjudged.size();
    count += state.working || state.retried ? 1 : 0;
    for (const auto& [user, items] : state.ready) count += items.size();
    return count;
  });
}

void SealQueue::add_paths(const State::Timed& from, size_t limit, std::vector<std::string>& to) {
  for (const auto& [id, timed] : from) {
    if (to.size() < limit && !timed.second.has_no_sign) to.push_back(shown_path(timed.second.path));
  }
}

/// Those that are to be sealed.
std::vector<std::string> SealQueue::waiting_paths(size_t limit) const {
  return state_.with([&](const State& state) {
    std::vector<std::string> paths;
    for (const auto& [user, items] : state.ready) {
      for (const auto& item : items) {
        if (paths.size() >= limit) break;
        if (!item.has_no_sign) paths.push_back(shown_path(item.path));
      }
    }
    add_paths(state.quiet, limit, paths);
    for (const auto& [due, item] : state.unjudged) {
      if (paths.size() < limit && !item.has_no_sign) paths.push_back(shown_path(item.path));
    }
    return paths;
  });
}

std::vector<std::string> SealQueue::paths_without_room(size_t limit) const {
  return state_.with([&](const State& state) {
    std::vector<std::string> paths;
    if (state.retried) paths.push_back(shown_path(*state.retried));
    add_paths(state.no_room, limit, paths);
    return paths;
  });
}

SteadyTime SealQueue::restless_at(const SealItem& item) const {
  return item.waits_since + kRestlessTimes * quiet_time_;
}

/// One that is due has been quiet, and waits for its turn only.
bool SealQueue::is_restless(const std::pair<SteadyTime, SealItem>& timed, SteadyTime now) const {
  return timed.first > now && restless_at(timed.second) <= now;
}

bool SealQueue::is_idle(const State& state) const {
  const SteadyTime now = std::chrono::steady_clock::now();
  return state.ready.empty() && state.unjudged.empty() && !state.working &&
         std::ranges::all_of(state.quiet, [&](const auto& one) { return is_restless(one.second, now); });
}

/// When is_idle() may become true although nothing is done.
SteadyTime SealQueue::next_restless(const State& state, SteadyTime latest) const {
  const SteadyTime now = std::chrono::steady_clock::now();
  for (const auto& [id, timed] : state.quiet) {
    const SteadyTime when = restless_at(timed.second);
    if (when > now) latest = std::min(latest, when);
  }
  return latest;
}

bool SealQueue::drain(Deadline deadline) {
  const auto idle = [this](const State& state) { return is_idle(state); };
  while (true) {
    const SteadyTime until = state_.with([&](const State& state) { return next_restless(state, deadline.at()); });
    if (state_.wait_until(until, idle, idle)) return true;
    if (deadline.passed()) return false;
  }
}

bool SealQueue::try_for_room(Deadline deadline) {
  const uint64_t seen = state_.notify_with([](State& state) {
    state.wants_retry = !state.no_room.empty() || state.retried;
    return state.retries + (state.retried ? 1 : 0);  // one that is under way may have begun before there was room
  });
  const auto is_over = [seen](const State& state) {
    return state.stopped || (state.no_room.empty() && !state.retried) || (state.retries > seen && !state.found_room);
  };
  return state_.wait_until(deadline.at(), is_over, is_over);
}

std::vector<std::string> SealQueue::still_written(size_t limit) const {
  return state_.with([&](const State& state) {
    const SteadyTime now = std::chrono::steady_clock::now();
    std::vector<std::string> paths;
    for (const auto& [id, timed] : state.quiet) {
      if (paths.size() < limit && is_restless(timed, now)) paths.push_back(shown_path(timed.second.path));
    }
    return paths;
  });
}

/// What has waited long enough takes its turn among the files of its owner.
void SealQueue::add_due(State& state, SteadyTime now) {
  for (auto one = state.quiet.begin(); one != state.quiet.end();) {
    const auto here = one++;
    if (here->second.first > now) continue;
    here->second.second.was_quiet = true;
    add_ready(state, std::move(here->second.second));
    state.quiet.erase(here);
  }
  while (!state.unjudged.empty() && state.unjudged.front().first <= now) {
    SealItem item = std::move(state.unjudged.front().second);
    state.unjudged.pop_front();
    if (const auto waits = state.quiet.find(item.node->id); waits != state.quiet.end()) {
      join(waits->second.second, item);  // written to since: it waits until it is quiet
    } else {
      add_ready(state, std::move(item));
    }
  }
}

/// The next of the user whose turn it is.
SealItem SealQueue::take_ready(State& state) {
  auto turn = state.ready.upper_bound(state.served);
  if (turn == state.ready.end()) turn = state.ready.begin();
  state.served = turn->first;
  SealItem item = std::move(turn->second.front());
  turn->second.pop_front();
  if (turn->second.empty()) state.ready.erase(turn);
  if (item.has_no_sign) return item;
  const auto names = state.queued.find(item.node->id);
  names->second.erase(item.path);
  if (names->second.empty()) state.queued.erase(names);
  return item;
}

/// The one that waits longest for room.
bool SealQueue::take_retry(State& state, SteadyTime now, SealItem& item) {
  const auto first =
      std::min_element(state.no_room.begin(), state.no_room.end(),
                       [](const auto& one, const auto& other) { return one.second.first < other.second.first; });
  if (first == state.no_room.end() || (first->second.first > now && !state.wants_retry)) return false;
  state.wants_retry = false;
  item = std::move(first->second.second);
  state.no_room.erase(first);
  state.retried = item.path;
  return true;
}

/// Says whether a sign of the file has come that is still to be acted on.
bool SealQueue::has_sign(const State& state, NodeId node) {
  return state.queued.contains(node) || state.no_room.contains(node) ||
         std::ranges::any_of(state.unjudged, [node](const auto& one) {
           return one.second.node->id == node && !one.second.has_no_sign;
         });
}

/// What waits for room gets every second turn at most: each try reads the bytes again, and mostly in vain.
bool SealQueue::take_due(State& state, SteadyTime now, SealItem& item) {
  add_due(state, now);
  const bool skips = std::exchange(state.skips_retries, false) && !state.ready.empty();
  if (!skips && take_retry(state, now, item)) return state.skips_retries = true;
  while (!state.ready.empty()) {
    item = take_ready(state);
    if (item.has_no_sign && has_sign(state, item.node->id)) {
      item.node->pins.fetch_sub(1);  // not the last one
      continue;
    }
    const auto waits = item.was_quiet ? state.quiet.find(item.node->id) : state.quiet.end();
    item.was_quiet = false;
    if (waits == state.quiet.end()) return state.working = true;
    join(waits->second.second, item);
  }
  return false;
}

void SealQueue::put_off(State::Timed& to, SealItem item, Milliseconds wait) {
  const NodeId id = item.node->id;
  const auto due = std::chrono::steady_clock::now() + wait;
  if (const auto waits = to.find(id); waits != to.end()) return join(waits->second.second, item);
  to.emplace(id, std::make_pair(due, std::move(item)));
}

SteadyTime SealQueue::next_due(const State& state) {
  const SteadyTime now = std::chrono::steady_clock::now();
  if (state.wants_retry && !state.no_room.empty()) return now;
  SteadyTime next = now + kRest;
  for (const auto* waits : {&state.quiet, &state.no_room}) {
    for (const auto& [id, timed] : *waits) next = std::min(next, timed.first);
  }
  return state.unjudged.empty() ? next : std::min(next, state.unjudged.front().first);
}

/// Where one has found room, so may the others.
void SealQueue::end_retry(State& state, SealOutcome outcome) {
  if (!state.retried) return;
  state.retried.reset();
  ++state.retries;
  state.found_room = outcome != SealOutcome::kNoRoom;
  if (!state.found_room) return;
  for (auto& [id, timed] : state.no_room) timed.first = std::chrono::steady_clock::now();
}

void SealQueue::take_back(State& state, SealItem item, SealOutcome outcome) const {
  if (outcome == SealOutcome::kUnjudged) {
    state.unjudged.emplace_back(std::chrono::steady_clock::now() + kJudgementStep, std::move(item));
    return;
  }
  const bool no_room = outcome == SealOutcome::kNoRoom;
  const bool waits_again = no_room && state.quiet.contains(item.node->id);
  item.waits_since = std::chrono::steady_clock::now();  // a request that is under way ends
  put_off(no_room && !waits_again ? state.no_room : state.quiet, std::move(item),
          no_room ? kQuietTimesUntilRoom * quiet_time_ : kRetry);
}

void SealQueue::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    SealItem item;
    const auto [until, added] =
        state_.with([](const State& state) { return std::make_pair(next_due(state), state.quiet_added); });
    const bool has_item = state_.wait_until(
        until,
        [seen = added](const State& state) {
          return state.stopped || !state.ready.empty() || state.quiet_added != seen ||
                 (state.wants_retry && !state.no_room.empty());
        },
        [&](State& state) {
          if (state.stopped) return false;
          return take_due(state, std::chrono::steady_clock::now(), item);
        });
    if (!has_item) continue;
    std::optional<Activity> activity(std::in_place, "seals " + item.path, AwaitedBy::kSync);
    const SealOutcome outcome = seal_(item);
    const bool later = outcome != SealOutcome::kDone;
    NodePtr done = later ? nullptr : item.node;
    if (done) {
      done->pins.fetch_sub(1);
      unpin_(done);
    }
    activity.reset();
    state_.notify_with([&](State& state) {
      state.working = false;
      end_retry(state, outcome);
      if (later) take_back(state, std::move(item), outcome);
    });
  }
}

}  // namespace inductorfs::vfs
