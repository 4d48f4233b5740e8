// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "inductorfs/remote/remote.h"

namespace inductorfs::catalog {

/// The number of one following of one scope. A scope that comes back gets a new number, so that work that is still done
/// for its earlier following has no effect.
using ScopeIndex = uint32_t;

struct FollowedScope {
  remote::ScopeId id;
  ScopeIndex index = 0;
};

/// The result of a change of the followed scopes.
struct Following {
  uint64_t version = 0;  ///< grows with each change
  std::vector<FollowedScope> scopes;
  bool some_new = false;
  std::set<ScopeIndex> gone;  ///< scopes that are no longer followed; their entries are still to be removed
};

/// The scopes that are followed now. Needs external synchronisation.
class FollowedScopes {
 public:
  Following follow(const std::vector<remote::ScopeId>& scopes);
  [[nodiscard]] std::vector<FollowedScope> all() const;
  [[nodiscard]] bool contains(ScopeIndex scope) const { return scopes_.contains(scope); }
  /// Returns the id of a followed scope; contains(scope) must be true.
  [[nodiscard]] const remote::ScopeId& id_of(ScopeIndex scope) const { return scopes_.at(scope); }
  [[nodiscard]] std::optional<ScopeIndex> index_of(const remote::ScopeId& scope) const;
  /// Says whether the entry of the first scope is visible when both have one: its id sorts first, or only it is
  /// followed.
  [[nodiscard]] bool precedes(ScopeIndex one, ScopeIndex other) const;

 private:
  std::map<ScopeIndex, remote::ScopeId> scopes_;
  ScopeIndex next_ = 0;
  uint64_t version_ = 0;
};

}  // namespace inductorfs::catalog
