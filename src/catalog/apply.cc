// SPDX-License-Identifier: Apache-2.0
// How a delta gets into memory and onto the disk: the second half of Tail.
#include <algorithm>
#include <chrono>
#include <deque>
#include <iterator>
#include <span>
#include <string_view>
#include <thread>
#include <unordered_set>
#include <utility>

#include "catalog/tail.h"

namespace inductorfs::catalog {
namespace {

/// Entries per lock of the tree: about half a millisecond during which lookups wait.
constexpr size_t kMemoryChunk = 512;
/// Rows per transaction: about ten milliseconds during which an enqueue waits.
constexpr size_t kDatabaseChunk = 2'000;
/// For who waits for the database meanwhile, an enqueue or `status`: a mutex that its holder takes again at once is
/// handed on to nobody.
constexpr std::chrono::microseconds kBetweenChunks{200};

template <typename T>
std::vector<T> take_front(std::deque<T>& all, size_t length) {
  const auto end = all.begin() + static_cast<ptrdiff_t>(std::min(length, all.size()));
  std::vector<T> front(std::move_iterator(all.begin()), std::move_iterator(end));
  all.erase(all.begin(), end);
  return front;
}

}  // namespace

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
  std::deque<codec::Entry> taken;
  // No longer followed: memory takes nothing of it, so the disk stays where it was, for the scope's return.
  if (!set_in_memory(scope, std::move(delta.set), scope.unwritten ? nullptr : &taken)) {
    // Of a snapshot, memory has a part or nothing. What is still followed is read again from the old position, which is
    // what the disk gets with it until then.
    const auto index = parts_.tree.read([&](const EntryTree& tree) { return tree.scopes().index_of(scope.id); });
    if (delta.reset && index != scope.index && std::exchange(scope.unwritten, false)) note_written(scope.index);
    return false;
  }
  delta.set = std::move(taken);
  note_applied(scope, delta.position, ended);
  if (!scope.unwritten) write_down(scope, std::move(delta));
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

bool Tail::set_in_memory(Followed& scope, std::deque<codec::Entry> entries, std::deque<codec::Entry>* taken) {
  std::vector<std::string> changed;
  while (!entries.empty()) {
    size_t refused = 0;
    bool gone = false;
    std::vector<codec::Entry> piece = take_front(entries, kMemoryChunk);
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
    if (gone || (refused > 0 && is_crowded())) return false;
    refuse(scope, refused);
  }
  return true;
}

bool Tail::forget_on_disk(const remote::ScopeId& scope) {
  while (true) {
    auto empty =
        parts_.durable.with([&](Durable& durable) { return durable.database.forget_some(scope, kDatabaseChunk); });
    if (!empty) {
      parts_.note_failure(empty.error());
      return false;
    }
    if (*empty) return true;
    if (parts_.stopping) return false;
    std::this_thread::sleep_for(kBetweenChunks);
  }
}

void Tail::write_down(Followed& scope, remote::Delta delta) {
  std::deque<std::string> removed(std::move_iterator(delta.removed.begin()), std::move_iterator(delta.removed.end()));
  // The position goes with the last piece: a crash before that reads the same changes again, which is harmless.
  for (bool more = true; more;) {
    const auto gone = take_front(removed, kDatabaseChunk);
    const auto set = take_front(delta.set, kDatabaseChunk);
    more = !removed.empty() || !delta.set.empty();
    if (!write_piece(scope, set, gone, more ? nullptr : &delta.position)) return;
  }
}

void Tail::write_snapshots() {
  for (auto& scope : followed_) {
    // What is more urgent goes first: then it is written anew from its beginning.
    if (scope.unwritten && !write_snapshot(scope, [this] { return disturbed(); })) return;
  }
}

bool Tail::write_snapshot(Followed& scope, const std::function<bool()>& cancelled) {
  const auto page_after = [&](const std::string& path) {
    return parts_.tree.read(
        [&](const EntryTree& tree) { return tree.paths().page_of(scope.index, path, kDatabaseChunk); });
  };
  PathTree::Page page = page_after({});
  if (cancelled() && page.next) return false;  // what the disk has is better than a part
  scope.durable = forget_on_disk(scope.id);
  while (page.next) {
    // A piece that fails is counted, and takes the position from the last one (Followed::durable).
    if (!page.entries.empty()) (void)write_piece(scope, page.entries, {}, nullptr);
    if (cancelled()) return false;
    page = page_after(*page.next);
  }
  (void)write_piece(scope, page.entries, {}, &scope.position);  // the last: nothing waits for time after it
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

bool Tail::write_piece(Followed& scope, std::span<const codec::Entry> set, std::span<const std::string> removed,
                       const remote::Position* position) {
  const bool is_last = position != nullptr;
  if (!scope.durable) position = nullptr;
  const auto written =
      parts_.durable.with([&](Durable& durable) { return durable.database.apply(scope.id, set, removed, position); });
  if (!written || (parts_.stopping && !is_last)) scope.durable = false;
  parts_.count_failure(written);
  if (parts_.stopping && !is_last) return false;
  std::this_thread::sleep_for(kBetweenChunks);
  return true;
}

}  // namespace inductorfs::catalog
