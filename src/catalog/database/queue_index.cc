// SPDX-License-Identifier: Apache-2.0
#include "catalog/database/queue_index.h"

#include <algorithm>
#include <set>
#include <utility>

namespace inductorfs::catalog {

void QueueIndex::add(int64_t id, Item item) {
  for (const auto& path : item.paths) by_path_[path].push_back(id);
  items_.emplace(id, std::move(item));
}

void QueueIndex::remove(int64_t id) {
  auto found = items_.find(id);
  if (found == items_.end()) return;
  for (const auto& path : found->second.paths) {
    const auto by = by_path_.find(path);
    if (by == by_path_.end()) continue;
    std::erase(by->second, id);
    if (by->second.empty()) by_path_.erase(by);
  }
  items_.erase(found);
}

QueueIndex::Item* QueueIndex::find(int64_t id) {
  auto found = items_.find(id);
  return found == items_.end() ? nullptr : &found->second;
}

std::optional<int64_t> QueueIndex::same_paths(const remote::ScopeId& scope,
                                              const std::vector<std::string>& paths) const {
  const auto by = by_path_.find(paths.front());
  if (by == by_path_.end()) return std::nullopt;
  const auto latest =
      std::find_if(by->second.rbegin(), by->second.rend(), [&](int64_t id) { return items_.at(id).scope == scope; });
  if (latest == by->second.rend()) return std::nullopt;
  std::vector<std::string> other = items_.at(*latest).paths;
  if (other.size() != paths.size()) return std::nullopt;
  if (other != paths) {
    std::vector<std::string> ours = paths;
    std::ranges::sort(other);
    std::ranges::sort(ours);
    if (other != ours) return std::nullopt;
  }
  return *latest;
}

std::optional<int64_t> QueueIndex::oldest() const {
  if (items_.empty()) return std::nullopt;
  return items_.begin()->first;
}

QueueIndex::Next QueueIndex::next(SteadyTime now) const {
  std::set<std::pair<std::string_view, std::string_view>> waiting;
  Next found;
  for (const auto& [id, item] : items_) {
    const auto waits = [&, &scope = item.scope](const auto& path) { return waiting.contains({path, scope}); };
    const bool behind = std::ranges::any_of(item.paths, waits);
    if (!behind && item.not_before <= now) return {id, now};
    if (!behind) found.due = std::min(found.due, item.not_before);
    for (const auto& path : item.paths) waiting.emplace(path, item.scope);
  }
  return found;
}

void QueueIndex::hurry(SteadyTime latest) {
  for (auto& [id, item] : items_) item.not_before = std::min(item.not_before, latest);
}

size_t QueueIndex::parked() const {
  return static_cast<size_t>(std::ranges::count_if(items_, [](const auto& item) { return item.second.attempts > 0; }));
}

std::optional<codec::Digest> QueueIndex::queued_digest(const remote::ScopeId& scope, const std::string& path) const {
  const auto by = by_path_.find(path);
  if (by == by_path_.end()) return std::nullopt;
  const auto latest =
      std::find_if(by->second.rbegin(), by->second.rend(), [&](int64_t id) { return items_.at(id).scope == scope; });
  if (latest == by->second.rend()) return std::nullopt;
  const Item& item = items_.at(*latest);
  const auto place = std::ranges::find(item.paths, path) - item.paths.begin();
  return item.digests[static_cast<size_t>(place)];
}

std::vector<const QueueIndex::Item*> QueueIndex::items_with(const std::string& path) const {
  std::vector<const Item*> found;
  const auto by = by_path_.find(path);
  if (by == by_path_.end()) return found;
  for (const int64_t id : by->second) found.push_back(&items_.at(id));
  return found;
}

std::vector<std::string> QueueIndex::paths(size_t limit) const {
  std::vector<std::string> found;
  for (const auto& [id, item] : items_) {
    for (const auto& path : item.paths) {
      if (found.size() == limit) return found;
      found.push_back(path);
    }
  }
  return found;
}

void QueueIndex::record(const PublishReport& report) {
  auto shared = std::make_shared<const PublishReport>(report);
  for (const auto& path : report.paths) {
    reports_[path] = shared;
    recorded_.emplace_back(path, shared);
    if (recorded_.size() <= kReportLimit) continue;
    // A path that was recorded again since then keeps its later report.
    auto oldest = reports_.find(recorded_.front().first);
    if (oldest != reports_.end() && oldest->second == recorded_.front().second) reports_.erase(oldest);
    recorded_.pop_front();
  }
}

std::optional<PublishReport> QueueIndex::state(const std::string& path) const {
  if (auto by = by_path_.find(path); by != by_path_.end()) {
    const Item& item = items_.at(by->second.back());
    return PublishReport{item.paths, PublishState::kQueued, item.error, std::nullopt};
  }
  if (auto found = reports_.find(path); found != reports_.end()) return *found->second;
  return std::nullopt;
}

}  // namespace inductorfs::catalog
