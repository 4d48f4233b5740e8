// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/layout/layout.h"
#include "inductorfs/layout/scope.h"

namespace inductorfs::layout {

/// Returns the built-in rules of this project, in the order of Family.
[[nodiscard]] std::span<const Rule> built_in_rules();

/// The built-in rules with an operator's changes. Immutable after construction.
class RuleTable {
 public:
  /// Makes the table, with the contract of change_rules().
  [[nodiscard]] static Result<std::unique_ptr<const RuleTable>> make(const std::vector<RuleChange>& changes);

  [[nodiscard]] std::span<const Rule> rules() const { return rules_; }
  /// Returns the configured family whose pattern matches, the first in the configuration's order.
  [[nodiscard]] std::optional<Family> configured_family(std::string_view path) const;

 private:
  RuleTable();
  Result<void> apply(const RuleChange& change);
  Result<void> change_built_in(Rule& rule, const RuleChange& change);
  Result<void> add(const RuleChange& change);
  Result<std::span<const fingerprint::Facet>> facets_of(const RuleChange& change);
  std::string_view keep(std::string text);

  std::vector<Rule> rules_;
  std::vector<std::string_view> changed_;               ///< the names for which there was a change
  std::deque<std::string> texts_;                       ///< the texts to which the rules' string views point
  std::deque<std::vector<fingerprint::Facet>> facets_;  ///< the facets to which their spans point
};

/// Returns the table that is in force. Safe for concurrent use.
[[nodiscard]] const RuleTable& rules_in_force();

}  // namespace inductorfs::layout
