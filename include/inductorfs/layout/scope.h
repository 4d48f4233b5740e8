// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/fingerprint/fingerprint.h"
#include "inductorfs/layout/layout.h"

/// Scopes: hosts with equal facts share. Pure; safe for concurrent use.
namespace inductorfs::layout {

/// The facts that one family depends on, on this host.
struct Scope {
  /// 64 hex digits: SHA-256 of `text`; empty when the family is private here.
  std::string id;
  /// Canonical: "inductorfs-scope-v1\n", then for each facet in name order "facet=<name>\n<value>\n". A facet that
  /// is added later to another family changes nothing here. Of the environment only what matters to the family.
  std::string text;
  /// Why there is no id: the family is never shared, or the facets that are not known, with their problem.
  std::string why_private;
};

[[nodiscard]] Scope scope_of(Family family, const fingerprint::Fingerprint& fingerprint);

/// The scope of artefacts for one GPU architecture ("9.0", as the gpu-arch facet writes it): on a host with unequal
/// devices, families whose only fact of the GPU is its architecture have a scope for each, and none without one: there
/// an empty architecture, and scope_of() above, give a private scope with the reason. A family or a host (without a
/// device) to which that does not apply gives scope_of(). An architecture that this host does not have gives a private
/// scope with the reason.
[[nodiscard]] Scope scope_of(Family family, const fingerprint::Fingerprint& fingerprint, std::string_view architecture);
/// Every scope of the family on this host: what its mount follows. At least one; of a private family that one.
[[nodiscard]] std::vector<Scope> scopes_of(Family family, const fingerprint::Fingerprint& fingerprint);

/// Two scope texts, facet by facet.
struct Difference {
  std::string facet;
  std::string ours;  ///< the lines that the other does not have; empty: the facet is missing there
  std::string theirs;
};
[[nodiscard]] std::vector<Difference> compare_scopes(std::string_view ours, std::string_view theirs);

/// What an operator changes in the rules. Built from the configuration, before anything else uses this module.
struct RuleChange {
  std::string family;  ///< a rule's name; or the name of a family of its own, with pattern
  /// Glob over canonical paths that no built-in family claims: `*` and `?` within a component, `**` any number of them.
  /// Empty: built-in. Such files are shared once they have been renamed into place.
  std::string pattern;
  std::optional<bool> shared;
  std::optional<std::vector<fingerprint::Facet>> facets;
};
inline constexpr size_t kConfiguredFamilyLimit = 16;
/// Puts the changes into force for this process. kInvalid names the change and the remedy: an unknown family, a family
/// that cannot be shared (locks, temporary names), a pattern without facets, a second call. Families of a pattern
/// follow Family::kOther, in the order given. Requires: called before any other thread uses the module.
[[nodiscard]] Result<void> change_rules(const std::vector<RuleChange>& changes);

}  // namespace inductorfs::layout
