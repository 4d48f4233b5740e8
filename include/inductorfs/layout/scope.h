// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
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
  /// is added later to another family changes nothing here.
  std::string text;
  /// Why there is no id: the family is never shared, or the facets that are not known, with their problem.
  std::string why_private;
};

[[nodiscard]] Scope scope_of(Family family, const fingerprint::Fingerprint& fingerprint);

}  // namespace inductorfs::layout
