// SPDX-License-Identifier: Apache-2.0
// How a delta gets into memory and onto the disk: the second half of Tail.
#include <algorithm>
#include <chrono>
#include <span>
#include <string_view>
#include <thread>
#include <unordered_set>
#include <utility>

#include "tail.h"

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
std::span<const T> chunk_at(const std::vector<T>& all, size_t start, size_t length) {
  return std::span<const T>(all).subspan(start, std::min(length, all.size() - start));
}

}  // namespace

bool Tail::apply(Followed& scope, remote::Delta delta, bool ended) {
  delta.set = acceptable(scope, std::move(delta.set));
  if (delta.reset) {
    // A snapshot comes in no order. Neighbours have their directory, the kernel's notices and the database's pages in
    // common.
    std::ranges::sort(delta.set, {}, &codec::Entry::path);
    // Not "forget all, then add": what stays the same must not be missing in between.
    remove_from_memory(scope.index, stale_after(scope, delta.set));
  }
  remove_from_memory(scope.index, delta.removed);
  // No longer followed: memory takes nothing of it, so the disk stays where it was, for the scope's return.
  if (!set_in_memory(scope, delta.set)) return false;
  scope.position = delta.position;
  state_.with([&](State& state) { state.positions[scope.index] = delta.position; });
  parts_.metrics.entries.set(parts_.tree.read([](const EntryTree& tree) { return tree.known(); }));
  // Memory is what is shown; the disk may take longer.
  if (ended) {
    scope.synced = true;
    note_synced();
  }
  write_down(scope, delta);
  forget_dropped_marks();
  return true;
}

std::vector<codec::Entry> Tail::acceptable(Followed& scope, std::vector<codec::Entry> entries) {
  const size_t came = entries.size();
  std::erase_if(entries, [&](const codec::Entry& entry) { return !parts_.acceptable(scope.id, entry); });
  parts_.metrics.rejected.add(came - entries.size());
  if (entries.size() < came) scope.whole = false;
  return entries;
}

std::vector<std::string> Tail::stale_after(const Followed& scope, const std::vector<codec::Entry>& snapshot) {
  std::vector<std::string> paths = parts_.tree.read([&](const EntryTree& tree) { return tree.paths_of(scope.index); });
  if (paths.empty()) return paths;  // as on a new node
  std::unordered_set<std::string_view> still_there;
  still_there.reserve(snapshot.size());
  for (const auto& entry : snapshot) still_there.insert(entry.path);
  std::erase_if(paths, [&](const std::string& path) { return still_there.contains(path); });
  return paths;
}

void Tail::remove_from_memory(ScopeIndex scope, const std::vector<std::string>& paths) {
  std::vector<std::string> changed;
  for (size_t start = 0; start < paths.size(); start += kMemoryChunk) {
    parts_.tree.write([&](EntryTree& tree) {
      for (const auto& path : chunk_at(paths, start, kMemoryChunk)) {
        if (tree.remove(scope, path)) changed.push_back(path);
      }
    });
    tell(changed);
  }
}

bool Tail::set_in_memory(Followed& scope, std::vector<codec::Entry>& entries) {
  std::vector<std::string> changed;
  bool gone = false;
  std::vector<bool> refused(entries.size(), false);
  for (size_t start = 0; start < entries.size(); start += kMemoryChunk) {
    parts_.tree.write([&](EntryTree& tree) {
      const size_t end = std::min(start + kMemoryChunk, entries.size());
      for (size_t i = start; i < end; ++i) {
        const EntryTree::Change change = tree.set(scope.index, entries[i]);
        if (change == EntryTree::Change::kVisible) changed.push_back(entries[i].path);
        refused[i] = change == EntryTree::Change::kRefused;
        gone = change == EntryTree::Change::kGone;
      }
    });
    tell(changed);
    if (gone) return false;
  }
  size_t place = 0;
  const size_t came = entries.size();
  std::erase_if(entries, [&](const codec::Entry&) { return refused[place++]; });
  parts_.metrics.rejected.add(came - entries.size());
  if (entries.size() < came) scope.whole = false;
  return true;
}

void Tail::tell(std::vector<std::string>& changed) {
  if (!changed.empty() && parts_.on_change) parts_.on_change(changed);
  changed.clear();
}

bool Tail::forget_on_disk(const remote::ScopeId& scope) {
  while (true) {
    auto empty =
        parts_.durable.with([&](Durable& durable) { return durable.database.forget_some(scope, kDatabaseChunk); });
    if (!empty) {
      parts_.metrics.database_errors.add();
      return false;
    }
    if (*empty) return true;
    if (parts_.stopping) return false;
    std::this_thread::sleep_for(kBetweenChunks);
  }
}

void Tail::write_down(Followed& scope, const remote::Delta& delta) {
  if (delta.reset) scope.durable = forget_on_disk(scope.id);
  const size_t longest = std::max(delta.set.size(), delta.removed.size());
  // The position goes with the last piece: a crash before that reads the same changes again, which is harmless.
  for (size_t start = 0; start == 0 || start < longest; start += kDatabaseChunk) {
    const bool last = start + kDatabaseChunk >= longest;
    const auto removed = chunk_at(delta.removed, std::min(start, delta.removed.size()), kDatabaseChunk);
    const auto set = chunk_at(delta.set, std::min(start, delta.set.size()), kDatabaseChunk);
    const remote::Position* position = last && scope.durable ? &delta.position : nullptr;
    const auto written =
        parts_.durable.with([&](Durable& durable) { return durable.database.apply(scope.id, set, removed, position); });
    if (!written) scope.durable = false;
    parts_.count_failure(written);
    if (parts_.stopping && !last) {
      scope.durable = false;
      return;
    }
    std::this_thread::sleep_for(kBetweenChunks);
  }
}

void Tail::forget_dropped_marks() {
  std::vector<Database::Mark> marks;
  for (auto& [path, digest] : parts_.tree.write([](EntryTree& tree) { return tree.take_dropped_marks(); })) {
    marks.push_back({std::move(path), digest});
  }
  if (marks.empty()) return;
  parts_.count_failure(parts_.durable.with([&](Durable& durable) { return durable.database.drop_marks(marks); }));
}

}  // namespace inductorfs::catalog
