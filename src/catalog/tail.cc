// SPDX-License-Identifier: Apache-2.0
#include "catalog/tail.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "inductorfs/base/activity.h"
#include "inductorfs/base/log.h"

namespace inductorfs::catalog {
namespace {

/// A scope whose snapshot takes longer is given twice the time after each timeout.
constexpr Milliseconds kReadPatienceMost{120'000};
/// Most of one wait. What comes ends it, so it may be long.
constexpr Milliseconds kWaitMost{60'000};
/// A scope is read at least this often, whatever the remote says of it.
constexpr Milliseconds kReadAnyway{600'000};
/// A scope that was named so often in a row without news is left out of the wait for kPauseInVain.
constexpr int kInVainMost = 3;
constexpr Milliseconds kPauseInVain{15'000};
/// Steps of one scope before the next one has its turn.
constexpr int kStepsPerTurn = 1'000;
/// Most between two looks for a server that is away. The remote keeps callers off by itself meanwhile, at no cost to
/// anybody, and lets one through now and then (remote::Breaker): who asks often finds the server back soon.
constexpr Milliseconds kAbsenceMost{2'000};
/// Entries per lock of the tree: about half a millisecond during which lookups wait.
constexpr size_t kMemoryChunk = 512;

Milliseconds pause_after(const Error& error, Backoff& backoff) {
  const Milliseconds pause = backoff.next();
  return error.code() == ErrorCode::kUnavailable ? std::min(pause, backoff.jittered(kAbsenceMost)) : pause;
}

/// Takes what the delta tells of from `paths`.
void take_told(const remote::Delta& delta, std::set<std::string>& paths) {
  for (auto entry = delta.set.begin(); !paths.empty() && entry != delta.set.end(); ++entry) paths.erase(entry->path);
  for (auto path = delta.removed.begin(); !paths.empty() && path != delta.removed.end(); ++path) paths.erase(*path);
}

}  // namespace

Tail::Tail(Parts& parts, std::map<ScopeIndex, remote::Position> positions)
    : parts_(parts), disk_(parts), index_(parts.index.index_until([this] { return disturbed(); })) {
  for (const auto& scope : parts.tree.read([](const EntryTree& tree) { return tree.scopes().all(); })) {
    followed_.emplace_back(scope).position = positions[scope.index];
  }
  state_.with([&](State& state) {
    state.positions = std::move(positions);
    state.synced = followed_.empty();
  });
}

void Tail::run() {
  while (!parts_.stopping) {
    std::optional<Activity> activity(std::in_place, "follows the log of the cluster");
    take_up_server();
    take_up_wanted();
    take_up_asked();
    for (auto& scope : followed_) {
      if (disturbed()) break;
      const auto now = std::chrono::steady_clock::now();
      if (now >= scope.due && (scope.stale || now >= scope.read_anyway)) read_to_end(scope);
    }
    note_synced();
    if (disturbed()) continue;
    note_answered();
    note_read_back();
    write_snapshots();
    if (std::exchange(untidy_, false)) forget_old_scopes();
    activity.reset();
    rest();
  }
  const Activity activity("ends scopes that nobody follows");
  // What was to be taken up next is left to the next start, but what has ended has ended.
  for (auto& scope : followed_) {
    if (scope.unwritten) (void)write_snapshot(scope, [] { return true; });  // what is one piece
    const auto index = parts_.tree.read([&](const EntryTree& tree) { return tree.scopes().index_of(scope.id); });
    if (index != scope.index) end(scope);
  }
}

void Tail::stop() {
  state_.notify_with([](State& state) { state.stopping = true; });
  index_->wake_waiters();
}

bool Tail::wait_synced(Deadline deadline) {
  return state_.wait_until(
             deadline.at(), [](const State& state) { return state.synced || state.stopping; },
             [](const State& state) { return state.synced; }) &&
         parts_.index.server_changes() == server_;
}

void Tail::take_up_server() {
  const uint64_t now = parts_.index.server_changes();
  if (now == server_) return;
  state_.with([](State& state) { state.synced = false; });
  note_loss();
  server_ = now;
  // Where its history ends just where this host had read to, what was published after that may still be known here.
  for (Followed& scope : followed_) {
    scope.position = {};
    scope.synced = scope.failing = false;
    scope.stale = true;
  }
}

uint64_t Tail::read_again() {
  const uint64_t ticket = state_.notify_with([](State& state) { return ++state.asked; });
  index_->wake_waiters();
  return ticket;
}

Result<void> Tail::wait_read_again(uint64_t ticket, Deadline deadline) {
  const auto is_over = [ticket](const State& state) { return state.answered >= ticket || state.stopping; };
  if (state_.wait_until(deadline.at(), is_over, is_over)) return {};
  return fail(ErrorCode::kTimedOut, "the server did not say in time whether it still has what it acknowledged");
}

void Tail::take_up_asked() {
  const uint64_t asked = state_.with([](const State& state) { return state.asked; });
  if (std::exchange(asked_, asked) == asked) return;
  for (Followed& scope : followed_) scope.stale = true;
}

void Tail::note_answered() {
  const auto is_read = [](const Followed& scope) { return !scope.stale || (scope.failing && !scope.is_away); };
  if (!std::ranges::all_of(followed_, is_read)) return;
  const auto is_new = [this](const State& state) { return state.answered != asked_; };
  if (!state_.with(is_new)) return;
  state_.notify_with([this](State& state) { state.answered = asked_; });
}

void Tail::note_read_back() {
  const uint64_t seen = parts_.durable.with([](const Durable& durable) { return durable.awaited; });
  if (parts_.tree.read([](const EntryTree& tree) { return !tree.awaited_of().empty(); })) return;
  parts_.count_failure(parts_.durable.with([seen](Durable& durable) { return durable.note_read_back(seen); }));
}

uint64_t Tail::lost_tails() const {
  return parts_.index.server_changes() + state_.with([](const State& state) { return state.resets; });
}

bool Tail::synced() const {
  return state_.with([](const State& state) { return state.synced; });
}

remote::Position Tail::position(ScopeIndex scope) const {
  return state_.with([&](const State& state) {
    auto found = state.positions.find(scope);
    return found == state.positions.end() ? remote::Position{} : found->second;
  });
}

void Tail::read_to_end(Followed& scope) {
  for (int step = 0; step < kStepsPerTurn && !disturbed(); ++step) {
    std::set<std::string> own = parts_.tree.read([&](const EntryTree& tree) { return tree.awaited_of(scope.index); });
    auto delta = index_->read_changes(scope.id, scope.position, Deadline::after(scope.patience));
    if (!delta && disturbed()) return;  // not the cluster's fault
    if (!delta) return failed(scope, delta.error());
    succeeded(scope);
    take_told(*delta, own);
    const bool quiet = delta->set.empty() && delta->removed.empty() && delta->position == scope.position;
    // What the disk had without a position may be of another history: the first answer replaces it. A scope that
    // nobody has published in may answer an empty snapshot each time.
    const bool first = !scope.synced && scope.position == remote::Position{};
    const bool lacks_own = delta->reset && !own.empty();
    const bool again = quiet && scope.synced && !lacks_own;
    if (delta->reset && !again) parts_.metrics.resets.add();
    delta->reset |= first;
    const bool ended = quiet || delta->at_head;
    const bool is_whole = delta->reset && !again;
    // A first answer that lacks what the disk knew is one too: the position with which that was known is forgotten.
    const bool is_lost =
        lacks_own ||
        (is_whole && (first ? !stale_after(scope, delta->set).empty() : scope.position != remote::Position{}));
    // A record that no release reads, beyond the head of the log, would be news for ever.
    scope.named_in_vain = quiet && scope.named && !delta->reset ? scope.named_in_vain + 1 : 0;
    scope.named = false;
    if (is_lost) note_loss();
    if ((!quiet || is_whole) && !apply(scope, std::move(*delta), ended)) return;
    if (is_lost) state_.with([](State& state) { ++state.resets; });
    if (is_whole) parts_.tree.write([&](EntryTree& tree) { tree.echoes().stop_awaiting(own); });
    if (ended && (is_whole || !doubts(scope, own))) return note_end(scope);
  }
}

void Tail::note_end(Followed& scope) {
  scope.synced = true;
  scope.stale = false;
  const bool in_vain = scope.named_in_vain >= kInVainMost;
  scope.read_anyway = std::chrono::steady_clock::now() + scope.backoff.jittered(in_vain ? kPauseInVain : kReadAnyway);
}

/// The log has come to its end without what this worker published before it was read: a server that fell back to just
/// where this host had read shows no other history. The index has the truth.
bool Tail::doubts(Followed& scope, const std::set<std::string>& own) {
  if (own.empty()) return false;
  scope.position = {};
  scope.synced = false;
  return true;
}

/// Before the disk has a position after the loss: who is killed in between would never hear of it again.
void Tail::note_loss() {
  parts_.count_failure(parts_.durable.with([](Durable& durable) { return durable.note_queue(false); }));
}

void Tail::failed(Followed& scope, const Error& error) {
  parts_.metrics.tail_errors.add();
  if (error.code() == ErrorCode::kTimedOut) scope.patience = std::min(scope.patience * 2, kReadPatienceMost);
  scope.failing = scope.stale = true;
  scope.due = std::chrono::steady_clock::now() + pause_after(error, scope.backoff);
  scope.is_away = error.code() == ErrorCode::kUnavailable || error.code() == ErrorCode::kTimedOut;
  if (!scope.is_away) state_.with([&](State& state) { state.unread[scope.id] = error.text(); });
  if (!parts_.stopping) {
    log::write_limited(log::Level::kWarning, "catalog.read_failed",
                       {{"scope", scope.id}, {"error", error.to_string()}});
  }
}

void Tail::succeeded(Followed& scope) {
  scope.patience = kReadPatience;
  scope.backoff.reset();
  if (!std::exchange(scope.failing, false)) return;
  state_.with([&](State& state) { state.unread.erase(scope.id); });
  parts_.durable.notify_with([](Durable& durable) {
    durable.reachable_again = true;
    ++durable.wakes;
  });
}

void Tail::note_synced() {
  if (!std::ranges::all_of(followed_, &Followed::synced)) return;
  state_.notify_with([&](State& state) {
    if (state.version == version_) state.synced = true;
  });
}

void Tail::pause_until(SteadyTime when) {
  state_.wait_until(
      when, [&](const State& state) { return state.stopping || state.version != version_ || state.asked != asked_; },
      [](const State&) {});
}

void Tail::rest() {
  const auto now = std::chrono::steady_clock::now();
  // Never more than two turns in poll_interval, however often the cluster announces something. The second comes at
  // once: what was published in another scope just before is seen with what was announced.
  const bool hurry = std::exchange(hurry_, false);
  if (!hurry) pause_until(now + wait_backoff_.jittered(parts_.options.poll_interval * 4 / 3));
  SteadyTime wake = now + wait_backoff_.jittered(kWaitMost);
  std::vector<std::pair<remote::ScopeId, remote::Position>> followed;
  bool behind = false;
  for (const auto& scope : followed_) {
    wake = std::min(wake, scope.failing ? scope.due : scope.read_anyway);
    behind = behind || (scope.stale && !scope.failing);
    if (!scope.failing && scope.named_in_vain < kInVainMost) followed.emplace_back(scope.id, scope.position);
  }
  if (disturbed() || is_asked() || behind) return;
  if (followed.empty()) return pause_until(wake);
  const Milliseconds most = Deadline(wake).left();
  if (most.count() == 0) return;
  const auto moved = index_->wait_for_changes(followed, most, [this] { return disturbed() || is_asked(); });
  for (auto& scope : followed_) {
    // Without an answer nothing is known of any of them, and a read tells how they are.
    scope.named = moved && std::ranges::find(*moved, scope.id) != moved->end();
    scope.stale = scope.stale || !moved || scope.named;
  }
  hurry_ = !hurry && moved && !moved->empty();
  if (moved || disturbed() || is_asked()) return wait_backoff_.reset();
  parts_.metrics.tail_errors.add();
  pause_until(std::chrono::steady_clock::now() + pause_after(moved.error(), wait_backoff_));
}

bool Tail::apply(Followed& scope, remote::Delta delta, bool ended) {
  const size_t came = delta.set.size();
  std::erase_if(delta.set, [&](const codec::Entry& entry) { return !parts_.acceptable(scope.id, entry); });
  refuse(scope, came - delta.set.size());
  if (delta.reset) {
    scope.unwritten = true;
    state_.with([&](State& state) { state.unwritten.insert(scope.index); });
    // It comes in no order. Neighbours have their directory and the kernel's notices in common.
    std::ranges::sort(delta.set, {}, &codec::Entry::path);
    // Not "forget all, then add": what stays the same must not be missing in between.
    remove_from_memory(scope.index, stale_after(scope, delta.set));
  }
  remove_from_memory(scope.index, delta.removed);
  std::vector<codec::Entry> taken;
  // No longer followed: memory takes nothing of it, so the disk stays where it was, for the scope's return.
  if (!set_in_memory(scope, std::move(delta.set), scope.unwritten ? nullptr : &taken)) {
    // Of a snapshot, memory has a part or nothing. What is still followed is read again from the old position, which is
    // what the disk gets with it until then.
    const auto index = parts_.tree.read([&](const EntryTree& tree) { return tree.scopes().index_of(scope.id); });
    if (delta.reset && index != scope.index && std::exchange(scope.unwritten, false)) note_written(scope.index);
    return false;
  }
  note_applied(scope, delta.position, ended);
  if (!scope.unwritten) disk_.write(scope, taken, delta.removed, delta.position);
  return true;
}

void Tail::refuse(Followed& scope, size_t entries) {
  parts_.metrics.rejected.add(entries);
  if (entries > 0) scope.whole = false;
}

/// Memory is what is shown; the disk may take longer.
void Tail::note_applied(Followed& scope, const remote::Position& position, bool ended) {
  scope.position = position;
  state_.with([&](State& state) { state.positions[scope.index] = position; });
  parts_.count_entries();
  if (!ended) return;
  scope.synced = true;
  note_synced();
}

std::vector<std::string> Tail::stale_after(const Followed& scope, const std::deque<codec::Entry>& snapshot) {
  std::vector<std::string> paths =
      parts_.tree.read([&](const EntryTree& tree) { return tree.paths().of_scope(scope.index); });
  if (paths.empty()) return paths;  // as on a new node
  std::unordered_set<std::string_view> still_there;
  still_there.reserve(snapshot.size());
  for (const auto& entry : snapshot) still_there.insert(entry.path);
  std::erase_if(paths, [&](const std::string& path) { return still_there.contains(path); });
  return paths;
}

void Tail::remove_from_memory(ScopeIndex scope, const std::vector<std::string>& paths, bool is_told) {
  std::vector<std::string> changed;
  for (std::span<const std::string> rest(paths); !rest.empty();) {
    const auto piece = rest.first(std::min(kMemoryChunk, rest.size()));
    rest = rest.subspan(piece.size());
    parts_.tree.write([&](EntryTree& tree) {
      for (const auto& path : piece) {
        if (tree.remove(scope, path) && !is_told) changed.push_back(path);
      }
    });
    parts_.tell(changed);
  }
}

bool Tail::set_in_memory(Followed& scope, std::deque<codec::Entry> entries, std::vector<codec::Entry>* taken) {
  std::vector<std::string> changed;
  while (!entries.empty()) {
    size_t refused = 0;
    bool gone = false;
    const auto end = entries.begin() + static_cast<ptrdiff_t>(std::min(kMemoryChunk, entries.size()));
    std::vector<codec::Entry> piece(std::move_iterator(entries.begin()), std::move_iterator(end));
    entries.erase(entries.begin(), end);
    parts_.tree.write([&](EntryTree& tree) {
      for (codec::Entry& entry : piece) {
        const EntryTree::Change change = tree.set(scope.index, entry);
        if (change == EntryTree::Change::kVisible) changed.push_back(entry.path);
        if (change == EntryTree::Change::kRefused) ++refused;
        gone = change == EntryTree::Change::kGone;
        if (taken != nullptr && change != EntryTree::Change::kRefused) taken->push_back(std::move(entry));
      }
    });
    parts_.tell(changed);
    const auto is_crowded = [](const State& state) { return !state.left.empty(); };
    if (gone || (refused > 0 && state_.with(is_crowded))) return false;
    refuse(scope, refused);
  }
  return true;
}

void Tail::write_snapshots() {
  for (auto& scope : followed_) {
    // What is more urgent goes first: then it is written anew from its beginning.
    if (scope.unwritten && !write_snapshot(scope, [this] { return disturbed(); })) return;
  }
}

bool Tail::write_snapshot(Followed& scope, const std::function<bool()>& cancelled) {
  if (!disk_.write_all(scope, scope.position, cancelled)) return false;
  scope.unwritten = false;
  note_written(scope.index);
  return true;
}

void Tail::note_written(ScopeIndex scope) {
  const bool left = state_.with([&](State& state) {
    state.unwritten.erase(scope);
    return state.left.erase(scope) > 0;
  });
  if (!left) return;
  remove_from_memory(scope, parts_.tree.read([&](const EntryTree& tree) { return tree.paths().of_scope(scope); }),
                     true);
}

}  // namespace inductorfs::catalog
