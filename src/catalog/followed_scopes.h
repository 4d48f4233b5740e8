// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "inductorfs/remote/remote.h"

namespace inductorfs::catalog {

/// One following of one scope: a scope that comes back has a new number, so that what somebody still does for its
/// earlier following meets nothing.
using ScopeIndex = uint32_t;

struct FollowedScope {
  remote::ScopeId id;
  ScopeIndex index = 0;
};

/// What a change of the followed scopes came to.
struct Following {
  uint64_t version = 0;  ///< grows with each change
  std::vector<FollowedScope> scopes;
  bool some_new = false;
  std::set<ScopeIndex> gone;  ///< their entries are still to be removed
};

/// The scopes that are followed now. Needs external synchronisation.
class FollowedScopes {
 public:
  Following follow(const std::vector<remote::ScopeId>& scopes);
  [[nodiscard]] std::vector<FollowedScope> all() const;
  [[nodiscard]] bool contains(ScopeIndex scope) const { return scopes_.contains(scope); }
  /// Requires: contains(scope).
  [[nodiscard]] const remote::ScopeId& id_of(ScopeIndex scope) const { return scopes_.at(scope); }
  [[nodiscard]] std::optional<ScopeIndex> index_of(const remote::ScopeId& scope) const;
  /// Whose entry is seen where both have one: that of the scope whose id sorts first; of one that is followed anyway.
  [[nodiscard]] bool precedes(ScopeIndex one, ScopeIndex other) const;

 private:
  std::map<ScopeIndex, remote::ScopeId> scopes_;
  ScopeIndex next_ = 0;
  uint64_t version_ = 0;
};

}  // namespace inductorfs::catalog
