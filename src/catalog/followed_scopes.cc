// SPDX-License-Identifier: Apache-2.0
#include "followed_scopes.h"

#include <algorithm>

namespace inductorfs::catalog {

Following FollowedScopes::follow(const std::vector<remote::ScopeId>& scopes) {
  Following following;
  following.version = ++version_;
  for (auto at = scopes_.begin(); at != scopes_.end();) {
    if (std::ranges::find(scopes, at->second) != scopes.end()) {
      ++at;
      continue;
    }
    following.gone.insert(at->first);
    at = scopes_.erase(at);
  }
  for (const auto& scope : scopes) {
    if (index_of(scope)) continue;
    scopes_.emplace(next_++, scope);
    following.some_new = true;
  }
  following.scopes = all();
  return following;
}

std::vector<FollowedScope> FollowedScopes::all() const {
  std::vector<FollowedScope> followed;
  for (const auto& [index, id] : scopes_) followed.push_back({id, index});
  return followed;
}

std::optional<ScopeIndex> FollowedScopes::index_of(const remote::ScopeId& scope) const {
  const auto found = std::ranges::find_if(scopes_, [&](const auto& one) { return one.second == scope; });
  if (found == scopes_.end()) return std::nullopt;
  return found->first;
}

bool FollowedScopes::precedes(ScopeIndex one, ScopeIndex other) const {
  const auto first = scopes_.find(one);
  const auto second = scopes_.find(other);
  if (first == scopes_.end() || second == scopes_.end()) return first != scopes_.end();
  return first->second < second->second;
}

}  // namespace inductorfs::catalog
