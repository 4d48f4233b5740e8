// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "inductorfs/config/json_forward.h"
#include "inductorfs/fingerprint/fingerprint.h"
#include "inductorfs/layout/scope.h"
#include "inductorfs/remote/index.h"

/// The answers of `inductorfs fingerprint`, and how one scope differs from others: JSON, and text made from that JSON.
namespace inductorfs::host {

/// Reports every facet with value, source, details, digest or problem, and the families that are private because of it;
/// torch's system hash; and the scopes. `mount --fingerprint` reads this report.
[[nodiscard]] config::Json fingerprint_report(const fingerprint::Fingerprint& facts);
[[nodiscard]] std::string fingerprint_text(const config::Json& report);

/// Reports the rules in force, in their order, with the scopes on a host with these facts.
[[nodiscard]] config::Json families_report(const fingerprint::Fingerprint& facts);
[[nodiscard]] std::string families_text(const config::Json& report);

/// Reports for each family whether two hosts share, and in which facts they differ.
[[nodiscard]] config::Json comparison_report(const fingerprint::Fingerprint& ours,
                                             const fingerprint::Fingerprint& theirs);
[[nodiscard]] std::string comparison_text(const config::Json& report);

/// Reports [{"facet", "ours", "theirs"}]: the lines that only one of two scopes has.
[[nodiscard]] config::Json differences_report(const std::vector<layout::Difference>& differences);

/// Says whether two scopes (layout::Scope::text) have the same facets. That of trust does not count: a root that shares
/// with all has none.
[[nodiscard]] bool have_same_facets(std::string_view one, std::string_view other);
/// Finds among `others` the scope with the same facets that differs in the fewest of them: {"scope", "family",
/// "others", "differences"}, or {"why_none"}. `text` is the layout::Scope::text of the scope that is compared.
[[nodiscard]] config::Json nearest_report(const std::string& text, const std::vector<remote::ScopeInformation>& others);

}  // namespace inductorfs::host
