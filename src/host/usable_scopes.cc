// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/host/usable_scopes.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "inductorfs/fingerprint/facet_text.h"
#include "inductorfs/layout/scope.h"

namespace inductorfs::host {
namespace {

using fingerprint::Facet;
using fingerprint::Fact;
using fingerprint::Fingerprint;

constexpr std::string_view kDriverKey = "driver";
constexpr std::string_view kThreadsKey = "threads";

bool is_of_job(Facet facet) {
  constexpr Facet kOfJobs[] = {Facet::kTorch,    Facet::kTriton, Facet::kPython,
                               Facet::kCompiler, Facet::kEngine, Facet::kEnvironment};
  return std::find(std::begin(kOfJobs), std::end(kOfJobs), facet) != std::end(kOfJobs);
}

std::string without(std::string_view text, std::string_view key) {
  std::vector<std::string_view> kept;
  for (const std::string_view line : fingerprint::lines_of(text)) {
    const auto parts = fingerprint::split_line(line);
    if (!parts || parts->first != key) kept.push_back(line);
  }
  return fingerprint::joined_lines(kept);
}

/// As fingerprint::with_job() makes these two facets: of the host's fact only this part stays whatever the job is.
bool agrees_in_part(Facet facet, const Fact& ours, const std::string& theirs) {
  if (facet == Facet::kCpuIsa) return ours.known && without(ours.value, kThreadsKey) == without(theirs, kThreadsKey);
  const auto driver = fingerprint::value_of(ours.known ? ours.value : ours.details, kDriverKey);
  return driver && fingerprint::value_of(theirs, kDriverKey) == driver;
}

/// Whether a job on this host may have this value where the host itself has `ours`.
bool may_be(Facet facet, const Fact& ours, const std::string& theirs, OpenFacts open) {
  if (facet == Facet::kTrust) return open.trust;
  if (open.jobs && is_of_job(facet)) return true;
  if (open.jobs && (facet == Facet::kCpuIsa || facet == Facet::kCuda) && agrees_in_part(facet, ours, theirs))
    return true;
  return ours.known && ours.value == theirs;
}

/// The trust facet is in scopes, although it is no fact of a host.
std::optional<Facet> facet_of(std::string_view name) {
  if (name == to_string(Facet::kTrust)) return Facet::kTrust;
  const auto facet = fingerprint::facet_from_string(name);
  return facet ? std::optional(*facet) : std::nullopt;
}

/// The facts of a job that has those of the text, as far as this host lets it.
Fingerprint with_text(const Fingerprint& host, OpenFacts open, std::string_view text) {
  Fingerprint facts = host;
  for (const auto& [name, lines] : layout::parse_scope_text(text).facets) {
    const auto facet = facet_of(name);
    if (!facet) continue;
    std::string value = fingerprint::joined_lines(lines);
    if (!may_be(*facet, host.get(*facet), value, open)) continue;
    Fact fact;
    fact.known = true;
    fact.value = std::move(value);
    facts.set(*facet, std::move(fact));
  }
  return facts;
}

}  // namespace

std::vector<layout::Family> families_here(const Fingerprint& host, OpenFacts open,
                                          const remote::ScopeInformation& scope) {
  const Fingerprint facts = with_text(host, open, scope.text);
  std::vector<layout::Family> families;
  for (const layout::Rule& rule : layout::all_rules()) {
    if (!rule.shared) continue;
    // The whole text is compared by its digest, so nothing in it that this host does not know can pass.
    const std::vector<layout::Scope> ours = layout::scopes_of(rule.family, facts);
    if (std::any_of(ours.begin(), ours.end(), [&](const layout::Scope& one) { return one.id == scope.id; })) {
      families.push_back(rule.family);
    }
  }
  return families;
}

std::string foreign_facets(const Fingerprint& host, OpenFacts open, const remote::ScopeInformation& scope) {
  std::string names;
  for (const auto& [name, lines] : layout::parse_scope_text(scope.text).facets) {
    const auto facet = facet_of(name);
    if (facet && may_be(*facet, host.get(*facet), fingerprint::joined_lines(lines), open)) continue;
    names.append(names.empty() ? "" : ", ").append(name);
  }
  return names;
}

}  // namespace inductorfs::host
