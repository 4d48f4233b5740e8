// SPDX-License-Identifier: Apache-2.0
#include "catalog/tree/followed_scopes.h"

#include <algorithm>
#include <iterator>

namespace inductorfs::catalog {

bool ScopeCounts::add(ScopeIndex scope) {
  const auto found = std::ranges::find(counts_, scope, &std::pair<ScopeIndex, uint64_t>::first);
  if (found == counts_.end()) {
    counts_.emplace_back(scope, 1);
    return true;
  }
  ++found->second;
  return false;
}

bool ScopeCounts::remove(ScopeIndex scope) {
  const auto found = std::ranges::find(counts_, scope, &std::pair<ScopeIndex, uint64_t>::first);
  if (found == counts_.end() || --found->second > 0) return false;
  counts_.erase(found);
  return true;
}

uint64_t ScopeCounts::total(const std::function<bool(ScopeIndex)>& is_wanted) const {
  uint64_t sum = 0;
  for (const auto& [scope, count] : counts_) {
    if (!is_wanted || is_wanted(scope)) sum += count;
  }
  return sum;
}

Following FollowedScopes::follow(const std::vector<remote::ScopeId>& scopes) {
  const std::set<remote::ScopeId> wanted(scopes.begin(), scopes.end());
  Following following;
  following.version = ++version_;
  for (auto at = scopes_.begin(); at != scopes_.end();) {
    if (wanted.contains(at->second)) {
      ++at;
      continue;
    }
    following.gone.insert(at->first);
    indices_.erase(at->second);
    at = scopes_.erase(at);
  }
  for (const auto& scope : scopes) {
    if (index_of(scope)) continue;
    indices_.emplace(scope, next_);
    scopes_.emplace(next_++, scope);
    following.some_new = true;
  }
  for (auto& [root, shown] : shown_) shown.followed = followed_of(shown.ids);
  following.scopes = all();
  return following;
}

std::vector<FollowedScope> FollowedScopes::all() const {
  std::vector<FollowedScope> followed;
  for (const auto& [index, id] : scopes_) followed.push_back({id, index});
  return followed;
}

std::optional<ScopeIndex> FollowedScopes::index_of(const remote::ScopeId& scope) const {
  const auto found = indices_.find(scope);
  if (found == indices_.end()) return std::nullopt;
  return found->second;
}

std::set<ScopeIndex> FollowedScopes::followed_of(const std::vector<remote::ScopeId>& ids) const {
  std::set<ScopeIndex> followed;
  for (const auto& id : ids) {
    if (const auto index = index_of(id)) followed.insert(*index);
  }
  return followed;
}

std::set<ScopeIndex> FollowedScopes::show(const std::string& root, const std::vector<remote::ScopeId>& scopes) {
  Shown now{scopes, followed_of(scopes)};
  std::set<ScopeIndex> changed;
  if (const auto before = shown_.find(root); before != shown_.end()) {
    std::ranges::set_symmetric_difference(before->second.followed, now.followed, std::inserter(changed, changed.end()));
  }
  shown_.insert_or_assign(root, std::move(now));
  return changed;
}

void FollowedScopes::forget_shown(std::string_view root) {
  if (const auto own = shown_.find(root); own != shown_.end()) shown_.erase(own);
}

const std::set<ScopeIndex>* FollowedScopes::shown_in(std::string_view root) const {
  if (shown_.empty()) return nullptr;
  auto found = shown_.find(root);
  if (found == shown_.end()) found = shown_.find(std::string_view{});
  return found == shown_.end() ? nullptr : &found->second.followed;
}

bool FollowedScopes::precedes(ScopeIndex one, ScopeIndex other) const {
  const auto first = scopes_.find(one);
  const auto second = scopes_.find(other);
  if (first == scopes_.end() || second == scopes_.end()) return first != scopes_.end();
  return first->second < second->second;
}

}  // namespace inductorfs::catalog
