// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inductorfs/remote/index.h"

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

/// How many entries of some kind each scope has, such as the visible ones at and below a directory. Needs external
/// synchronisation.
class ScopeCounts {
 public:
  /// Returns whether it is the first.
  bool add(ScopeIndex scope);
  /// Returns whether it was the last.
  bool remove(ScopeIndex scope);
  [[nodiscard]] bool has(ScopeIndex scope) const {
    return any_of([scope](ScopeIndex one) { return one == scope; });
  }
  [[nodiscard]] bool is_empty() const { return counts_.empty(); }
  [[nodiscard]] bool any_of(const auto& is_wanted) const {
    return std::ranges::any_of(counts_, [&](const auto& one) { return is_wanted(one.first); });
  }
  [[nodiscard]] uint64_t total(const std::function<bool(ScopeIndex)>& is_wanted = {}) const;

 private:
  std::vector<std::pair<ScopeIndex, uint64_t>> counts_;  ///< in no order; a directory has few scopes, and none with 0
};

/// The scopes that are followed now, and which of them each cache root shows. Needs external synchronisation.
class FollowedScopes {
 public:
  Following follow(const std::vector<remote::ScopeId>& scopes);
  [[nodiscard]] std::vector<FollowedScope> all() const;
  [[nodiscard]] bool contains(ScopeIndex scope) const { return scopes_.contains(scope); }
  /// Counts those of followed scopes.
  [[nodiscard]] uint64_t total(const ScopeCounts& counts) const {
    return counts.total([this](ScopeIndex scope) { return contains(scope); });
  }
  /// Returns the id of a followed scope; contains(scope) must be true.
  [[nodiscard]] const remote::ScopeId& id_of(ScopeIndex scope) const { return scopes_.at(scope); }
  [[nodiscard]] std::optional<ScopeIndex> index_of(const remote::ScopeId& scope) const;

  /// Catalog::show(). Returns the scopes that came to the root or went from it, if it had scopes of its own before.
  std::set<ScopeIndex> show(const std::string& root, const std::vector<remote::ScopeId>& scopes);
  /// Ends show() for this root.
  void forget_shown(std::string_view root);
  /// Returns the scopes that a root shows; nullptr for all that are followed.
  [[nodiscard]] const std::set<ScopeIndex>* shown_in(std::string_view root) const;
  /// Says whether a scope is one of shown_in().
  [[nodiscard]] bool is_in(const std::set<ScopeIndex>* shown, ScopeIndex scope) const {
    return shown == nullptr ? contains(scope) : shown->contains(scope);
  }
  /// Says whether the entry of the first scope is visible when both have one: its id sorts first, or only it is
  /// followed.
  [[nodiscard]] bool precedes(ScopeIndex one, ScopeIndex other) const;

 private:
  struct Shown {
    std::vector<remote::ScopeId> ids;
    std::set<ScopeIndex> followed;  ///< those of them that are followed
  };
  [[nodiscard]] std::set<ScopeIndex> followed_of(const std::vector<remote::ScopeId>& ids) const;

  std::map<ScopeIndex, remote::ScopeId> scopes_;
  std::map<remote::ScopeId, ScopeIndex> indices_;
  std::map<std::string, Shown, std::less<>> shown_;  ///< by root
  ScopeIndex next_ = 0;
  uint64_t version_ = 0;
};

}  // namespace inductorfs::catalog
