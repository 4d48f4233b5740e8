// SPDX-License-Identifier: Apache-2.0
// Scopes that come and go while the catalog lives: the second part of Tail.
#include <algorithm>
#include <utility>

#include "catalog/load.h"
#include "catalog/tail.h"
#include "inductorfs/base/log.h"

namespace inductorfs::catalog {

void Tail::follow(const std::vector<remote::ScopeId>& scopes) {
  // From here on nobody sees what is no longer followed, and the thread cannot add to it (EntryTree::Change::kGone).
  const Following following = parts_.tree.write([&](EntryTree& tree) { return tree.follow(scopes); });
  if (!following.some_new && following.gone.empty()) return;
  for (const ScopeIndex gone : following.gone) {
    std::vector<std::string> paths =
        parts_.tree.read([&](const EntryTree& tree) { return tree.paths().of_scope(gone); });
    // Memory is all that has a snapshot until it is on the disk, for the scope's return.
    const bool stays = state_.with([&](State& state) {
      if (!state.unwritten.contains(gone)) return false;
      state.left.insert(gone);
      return true;
    });
    if (stays) {
      parts_.tell(paths);
    } else {
      remove_from_memory(gone, paths);
    }
  }
  parts_.count_entries();
  // Only now: what comes in must not meet names of what goes.
  state_.notify_with([&](State& state) {
    if (following.some_new) state.synced = false;
    if (following.version <= state.version) return;  // another caller was later
    state.wanted = following.scopes;
    state.version = wanted_version_ = following.version;
    if (following.scopes.empty()) state.synced = true;
  });
  index_->wake_waiters();
}

void Tail::take_up_wanted() {
  std::optional<std::vector<FollowedScope>> wanted;
  state_.with([&](State& state) {
    wanted = std::exchange(state.wanted, std::nullopt);
    version_ = state.version;
  });
  if (!wanted) return;
  std::vector<remote::ScopeId> ids;
  for (const auto& scope : *wanted) ids.push_back(scope.id);
  // Before any of their entries: what is on the disk must be known there as something to forget one day.
  parts_.count_failure(parts_.durable.with([&](Durable& durable) { return durable.database.note_followed(ids); }));

  std::vector<Followed> followed;
  for (auto& scope : followed_) {
    const auto same = [&](const FollowedScope& other) { return other.index == scope.index; };
    if (std::ranges::any_of(*wanted, same)) {
      followed.push_back(std::move(scope));
    } else {
      end(scope);
    }
  }
  const auto begun = followed.size();
  for (const auto& scope : *wanted) {
    const auto same = [&](const Followed& other) { return other.index == scope.index; };
    if (std::none_of(followed.begin(), followed.begin() + static_cast<ptrdiff_t>(begun), same)) {
      followed.push_back(begin(scope));
    }
  }
  followed_ = std::move(followed);
  untidy_ = true;
  log::info("catalog.follows", {{"scopes", std::to_string(followed_.size())}});
}

Tail::Followed Tail::begin(const FollowedScope& scope) {
  Followed followed(scope);
  auto position = load_scope(parts_, scope);
  if (position) {
    followed.position = std::move(*position);
  } else {
    parts_.note_failure(position.error());  // the cluster has all of it
  }
  state_.with([&](State& state) { state.positions[followed.index] = followed.position; });
  parts_.count_entries();
  return followed;
}

void Tail::end(Followed& scope) {
  // What stopping cuts off is read again by the next start.
  if (scope.unwritten) (void)write_snapshot(scope, [this] { return parts_.stopping.load(); });
  disk_.end(scope.index);
  state_.with([&](State& state) {
    state.positions.erase(scope.index);
    state.unread.erase(scope.id);
  });
  // What this host's facts made it refuse is missing on the disk, although the position has passed it.
  if (scope.whole) return;
  parts_.count_failure(
      parts_.durable.with([&](Durable& durable) { return durable.database.forget_position(scope.id); }));
}

void Tail::forget_old_scopes() {
  std::vector<remote::ScopeId> followed;
  for (const auto& scope : followed_) followed.push_back(scope.id);
  const auto done = disk_.forget_beyond_limits(followed, [this] { return disturbed(); });
  if (!done) return parts_.note_failure(done.error());
  untidy_ = !*done;
}

}  // namespace inductorfs::catalog
