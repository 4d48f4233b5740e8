// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/layout/scope.h"

#include <algorithm>
#include <string_view>

#include "inductorfs/codec/digest.h"

namespace inductorfs::layout {
namespace {

using fingerprint::Facet;
using fingerprint::Fact;

constexpr std::string_view kHeader = "inductorfs-scope-v1\n";
constexpr std::string_view kFacetLine = "facet=";

/// Why the fact cannot be part of a scope; empty when it can.
std::string problem_of(const Fact& fact) {
  if (!fact.known) return fact.problem.empty() ? "not known" : fact.problem;
  if (fact.value.empty()) return "known, but empty";
  // Such a line in a value would let two different sets of facts have one text.
  const std::string lines = "\n" + fact.value;
  if (lines.find("\n" + std::string(kFacetLine)) != std::string::npos) return "has a line that begins with facet=";
  return {};
}

}  // namespace

Scope scope_of(Family family, const fingerprint::Fingerprint& fingerprint) {
  const Rule& rule = rule_of(family);
  Scope scope;
  if (!rule.shared) {
    scope.why_private = std::string(rule.name) + " is never shared: " + std::string(rule.why);
    return scope;
  }
  std::vector<Facet> facets(rule.facets.begin(), rule.facets.end());
  std::sort(facets.begin(), facets.end(),
            [](Facet one, Facet other) { return fingerprint::to_string(one) < fingerprint::to_string(other); });
  std::string text(kHeader);
  for (const Facet facet : facets) {
    const std::string name(fingerprint::to_string(facet));
    const Fact& fact = fingerprint.get(facet);
    if (const std::string problem = problem_of(fact); !problem.empty()) {
      if (!scope.why_private.empty()) scope.why_private += "; ";
      scope.why_private.append("facet ").append(name).append(": ").append(problem);
      continue;
    }
    text.append(kFacetLine).append(name).append("\n").append(fact.value).append("\n");
  }
  if (!scope.why_private.empty()) return scope;
  scope.id = codec::digest_of(text).to_hex();
  scope.text = std::move(text);
  return scope;
}

}  // namespace inductorfs::layout
