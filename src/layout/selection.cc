// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/layout/selection.h"

#include <algorithm>

#include "inductorfs/base/text.h"
#include "inductorfs/fingerprint/facet_text.h"
#include "inductorfs/layout/glob.h"
#include "inductorfs/layout/layout.h"
#include "inductorfs/layout/scope.h"

namespace inductorfs::layout {

bool Selection::fits(const codec::Entry& entry) const {
  if (digest && *digest != entry.digest) return false;
  if (before_ns && entry.mtime_ns >= *before_ns) return false;
  if (!pattern.empty() && !glob_matches(pattern, entry.path)) return false;
  if (families.empty()) return true;
  const std::string_view name = rule_of(classify(entry.path).family).name;
  return std::ranges::find(families, name) != families.end();
}

bool Selection::fits_scope(std::string_view id) const {
  return scopes.empty() ||
         std::ranges::any_of(scopes, [id](const std::string& beginning) { return id.starts_with(beginning); });
}

bool is_of_torch(std::string_view scope_text, std::string_view version) {
  for (const auto& [name, lines] : parse_scope_text(scope_text).facets) {
    if (name != to_string(fingerprint::Facet::kTorch)) continue;
    const auto theirs = fingerprint::value_of(fingerprint::joined_lines(lines), "version");
    if (!theirs || !theirs->starts_with(version)) return false;
    const std::string_view rest = std::string_view(*theirs).substr(version.size());
    return rest.empty() || rest.front() == '.' || rest.front() == '+';
  }
  return false;
}

Result<void> check_selection(const Selection& selection) {
  constexpr std::string_view kHex = "0123456789abcdef";
  for (const std::string& scope : selection.scopes) {
    const bool is_beginning = scope.size() >= kScopeBeginning && scope.size() <= 2 * codec::Digest::kSize &&
                              scope.find_first_not_of(kHex) == std::string::npos;
    if (is_beginning) continue;
    return fail(ErrorCode::kInvalid, "--scope " + scope + ": give at least the first " +
                                         std::to_string(kScopeBeginning) +
                                         " hexadecimal digits of a scope's id, as explain shows it");
  }
  if (selection.scopes.size() > kSelectedScopesLimit) {
    return fail(ErrorCode::kTooLarge, "more than " + std::to_string(kSelectedScopesLimit) +
                                          " scopes are selected: purge some of them at a time, with --scope");
  }
  for (const std::string& family : selection.families) {
    if (std::ranges::find(all_rules(), family, &Rule::name) != all_rules().end()) continue;
    std::vector<std::string> names;
    for (const Rule& rule : all_rules()) names.emplace_back(rule.name);
    const std::string nearest = nearest_name(family, names);
    return fail(ErrorCode::kInvalid, "--family " + family + ": there is no such family" +
                                         (nearest.empty() ? "" : "; did you mean " + nearest + "?") +
                                         "; inductorfs fingerprint --families lists them");
  }
  if (selection.pattern.empty()) return {};
  const std::string problem = glob_problem(selection.pattern);
  return problem.empty() ? Result<void>()
                         : fail(ErrorCode::kInvalid, "--pattern " + selection.pattern + ": " + problem);
}

}  // namespace inductorfs::layout
