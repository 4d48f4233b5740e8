// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inductorfs/fingerprint/fingerprint.h"
#include "inductorfs/layout/layout.h"

/// Scopes: hosts with equal facts share artefacts. All but change_rules() is pure and safe for concurrent use.
namespace inductorfs::layout {

/// The facts that one family depends on, on this host.
struct Scope {
  /// 64 hex digits: SHA-256 of `text`; empty when the family is private here.
  std::string id;
  /// Canonical text: "inductorfs-scope-v1\n", then for each facet in name order "facet=<name>\n<value>\n". A facet that
  /// is later added to another family changes nothing here. The environment facet has only the variables that matter to
  /// the family.
  std::string text;
  /// Why there is no id: the family is never shared, or some facets are not known, with the problem of each.
  std::string why_private;
  /// There is no id because there is certainly nothing here that makes or uses the family's artefacts, a serving
  /// engine: no fault that anybody should mend.
  bool unused = false;
};

/// The trust facet, if it is set and not "none", is a part of each scope.
[[nodiscard]] Scope scope_of(Family family, const fingerprint::Fingerprint& fingerprint);

/// Returns the scope of artefacts for one GPU architecture ("9.0", as the gpu-arch facet writes it). On a host with
/// devices of different architectures, a family whose only fact of the GPU is its architecture has a scope for each
/// architecture, and none without one: there an empty architecture, and scope_of() above, give a private scope with the
/// reason. For other families, and for a host without a device, this is scope_of() above. An architecture that this
/// host does not have gives a private scope with the reason.
[[nodiscard]] Scope scope_of(Family family, const fingerprint::Fingerprint& fingerprint, std::string_view architecture);
/// Returns every scope of the family on this host, which are the ones that its mount follows. There is at least one; a
/// private family has one private scope.
[[nodiscard]] std::vector<Scope> scopes_of(Family family, const fingerprint::Fingerprint& fingerprint);

/// The lines of a scope's text. They point into the text.
struct ScopeText {
  using Lines = std::vector<std::string_view>;
  Lines header;                                            ///< what stands before the first facet
  std::vector<std::pair<std::string_view, Lines>> facets;  ///< name and value, in the text's order
};
[[nodiscard]] ScopeText parse_scope_text(std::string_view text);

/// One facet in which two scope texts differ.
struct Difference {
  std::string facet;
  std::string ours;    ///< our lines that the other text lacks; all our lines if only the order differs
  std::string theirs;  ///< the same for the other text
};
[[nodiscard]] std::vector<Difference> compare_scopes(std::string_view ours, std::string_view theirs);

/// A change of the rules that an operator configures. The configuration builds it before anything else uses this
/// module.
struct RuleChange {
  std::string family;  ///< a rule's name; with `pattern`, the name of a new family
  /// A glob over canonical paths that no built-in family claims: `*` and `?` match within a component, `**` any number
  /// of components. Empty: the family is built in. Files of a pattern are shared once they have been renamed into
  /// place.
  std::string pattern;
  std::optional<bool> shared;
  std::optional<std::vector<fingerprint::Facet>> facets;
};
inline constexpr size_t kConfiguredFamilyLimit = 16;
/// Puts the changes into force for this process. kInvalid names the change and the remedy: an unknown family, a family
/// that cannot be shared (locks, temporary names), a pattern without facets, a second call. Families of a pattern
/// follow Family::kOther, in the order given. Must be called before any other thread uses the module.
[[nodiscard]] Result<void> change_rules(const std::vector<RuleChange>& changes);

}  // namespace inductorfs::layout
