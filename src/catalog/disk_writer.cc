// SPDX-License-Identifier: Apache-2.0
#include "catalog/disk_writer.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace inductorfs::catalog {
namespace {

/// Rows per transaction: about ten milliseconds during which an enqueue waits.
constexpr size_t kDatabaseChunk = 2'000;
/// For who waits for the database meanwhile, an enqueue or `status`: a mutex that its holder takes again at once is
/// handed on to nobody.
constexpr std::chrono::microseconds kBetweenChunks{200};

template <typename T>
std::span<const T> take_front(std::span<const T>& all) {
  const auto front = all.first(std::min(kDatabaseChunk, all.size()));
  all = all.subspan(front.size());
  return front;
}

}  // namespace

void DiskWriter::write(const FollowedScope& scope, std::span<const codec::Entry> set,
                       std::span<const std::string> removed, const remote::Position& position) {
  // The position goes with the last piece: a crash before that reads the same changes again, which is harmless.
  for (bool more = true; more;) {
    const auto gone = take_front(removed);
    const auto come = take_front(set);
    more = !removed.empty() || !set.empty();
    if (!write_piece(scope, come, gone, more ? nullptr : &position)) return;
  }
}

bool DiskWriter::write_all(const FollowedScope& scope, const remote::Position& position,
                           const std::function<bool()>& cancelled) {
  const auto page_after = [&](const std::string& path) {
    return parts_.tree.read(
        [&](const EntryTree& tree) { return tree.paths().page_of(scope.index, path, kDatabaseChunk); });
  };
  PathTree::Page page = page_after({});
  if (cancelled() && page.next) return false;  // what the disk has is better than a part
  lacking_.erase(scope.index);
  if (!forget(scope.id)) lacking_.insert(scope.index);
  while (page.next) {
    // A piece that fails is counted, and takes the position from the last one.
    if (!page.entries.empty()) (void)write_piece(scope, page.entries, {}, nullptr);
    if (cancelled()) return false;
    page = page_after(*page.next);
  }
  (void)write_piece(scope, page.entries, {}, &position);  // the last: nothing waits for time after it
  return true;
}

bool DiskWriter::write_piece(const FollowedScope& scope, std::span<const codec::Entry> set,
                             std::span<const std::string> removed, const remote::Position* position) {
  const bool is_last = position != nullptr;
  if (lacking_.contains(scope.index)) position = nullptr;
  const auto written =
      parts_.durable.with([&](Durable& durable) { return durable.database.apply(scope.id, set, removed, position); });
  const bool is_cut_off = parts_.stopping && !is_last;
  if (!written || is_cut_off) lacking_.insert(scope.index);
  parts_.count_failure(written);
  if (is_cut_off) return false;
  std::this_thread::sleep_for(kBetweenChunks);
  return true;
}

bool DiskWriter::forget(const remote::ScopeId& scope) {
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

Result<bool> DiskWriter::forget_beyond_limits(const std::vector<remote::ScopeId>& followed,
                                              const std::function<bool()>& cancelled) {
  INDUCTORFS_TRY_ASSIGN(
      const auto old, parts_.durable.with([&](Durable& durable) { return durable.database.once_followed(followed); }));
  uint64_t left = parts_.options.entry_limit;
  size_t kept = 0;
  for (const auto& scope : old) {
    if (cancelled()) return false;
    // An index of a million entries is counted in some tens of milliseconds.
    INDUCTORFS_TRY_ASSIGN(const uint64_t entries, parts_.durable.with([&](Durable& durable) {
      return durable.database.count_entries(scope, left + 1);
    }));
    if (kept < kScopesKept && entries <= left) {
      left -= entries;
      ++kept;
      continue;
    }
    if (!forget(scope)) return true;  // counted there
    INDUCTORFS_TRY(parts_.durable.with([&](Durable& durable) { return durable.database.forget_scope(scope); }));
    parts_.metrics.scopes_forgotten.add();
  }
  return true;
}

}  // namespace inductorfs::catalog
