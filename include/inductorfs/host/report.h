// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "inductorfs/config/json.h"
#include "inductorfs/fingerprint/fingerprint.h"
#include "inductorfs/layout/scope.h"
#include "inductorfs/remote/remote.h"

/// What `inductorfs fingerprint` answers, and how one scope differs from others: JSON, and text made of that JSON.
namespace inductorfs::host {

/// Every facet with value, source, details, digest or problem, and the families that are private because of it; torch's
/// system hash; the scopes. `mount --fingerprint` takes it as it is.
[[nodiscard]] config::Json fingerprint_report(const fingerprint::Fingerprint& facts);
[[nodiscard]] std::string fingerprint_text(const config::Json& report);

/// The rules in force, in their order, with the scopes on a host with these facts.
[[nodiscard]] config::Json families_report(const fingerprint::Fingerprint& facts);
[[nodiscard]] std::string families_text(const config::Json& report);

/// Family by family: whether two hosts share, and what parts them.
[[nodiscard]] config::Json comparison_report(const fingerprint::Fingerprint& ours,
                                             const fingerprint::Fingerprint& theirs);
[[nodiscard]] std::string comparison_text(const config::Json& report);

/// [{"facet", "ours", "theirs"}], the lines that only one of two scopes has.
[[nodiscard]] config::Json differences_report(const std::vector<layout::Difference>& differences);

/// Of `others`, the scope of the same facets that differs in the fewest of them: {"scope", "family", "others",
/// "differences"}, or {"why_none"}. `text`: layout::Scope::text of the scope that is compared.
[[nodiscard]] config::Json nearest_report(const std::string& text, const std::vector<remote::ScopeInformation>& others);
/// The facets of a scope's text, in its order: name and value.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> facets_of(std::string_view scope_text);

}  // namespace inductorfs::host
