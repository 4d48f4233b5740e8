// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/layout/scope.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inductorfs/codec/digest.h"
#include "inductorfs/fingerprint/variables.h"

namespace inductorfs::layout {
namespace {

using fingerprint::Facet;
using fingerprint::Fact;

constexpr std::string_view kHeader = "inductorfs-scope-v1\n";
constexpr std::string_view kFacetLine = "facet=";
std::string listed(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text.append(text.empty() ? "" : ", ").append(word);
  return text;
}

/// What an engine made shows that there is one. If none was found, it lies where it is not looked for, and two that
/// are not the same would share.
bool is_missing(Facet facet, const Fact& fact) { return facet == Facet::kEngine && fact.is_none(); }

/// Why the fact cannot be part of a scope; empty when it can.
std::string problem_of(Facet facet, const Fact& fact) {
  if (is_missing(facet, fact)) return "no serving engine is installed beside torch";
  if (!fact.known) return fact.problem.empty() ? "not known" : fact.problem;
  if (fact.value.empty()) return "known, but empty";
  // Such a line in a value would let two different sets of facts have one text.
  const std::string lines = "\n" + fact.value;
  if (lines.find("\n" + std::string(kFacetLine)) != std::string::npos) return "has a line that begins with facet=";
  return {};
}

bool has_facet(const Rule& rule, Facet facet) {
  return std::find(rule.facets.begin(), rule.facets.end(), facet) != rule.facets.end();
}

/// Whether the GPU's architecture is all that the family asks of it: then each of its artefacts is for one, and says
/// for which. The others depend on whole devices without saying on which of them they were made.
bool is_per_architecture(const Rule& rule) {
  return rule.shared && has_facet(rule, Facet::kGpuArch) && !has_facet(rule, Facet::kGpu);
}

/// "9.0", "10.0", ... without repeats, in the facet's order; none on a host without a GPU.
std::vector<std::string> architectures_of(const Fact& fact) {
  std::vector<std::string> found;
  if (!fact.known) return found;
  for (std::string& architecture : fingerprint::values_of(fact.value, fingerprint::kArchitectureKey)) {
    if (std::find(found.begin(), found.end(), architecture) == found.end()) found.push_back(std::move(architecture));
  }
  return found;
}

/// The fact as a host would have it all of whose devices are of this architecture.
Fact for_architecture(Fact fact, std::string_view architecture) {
  std::vector<std::string_view> kept;
  bool named = false;
  for (const std::string_view line : fingerprint::lines_of(fact.value)) {
    const auto parts = fingerprint::split_line(line);
    const bool names_one = parts && parts->first == fingerprint::kArchitectureKey;
    if (names_one && (named || parts->second != architecture)) continue;
    named = named || names_one;
    kept.push_back(line);
  }
  std::string value = fingerprint::joined_lines(kept);
  fact.value = std::move(value);
  return fact;
}

/// Without the variables that do not matter to this family, so that declaring one moves those alone that it matters to.
/// What is not known here, from a later version's file, stays.
Fact for_rule(Fact environment, const Rule& rule) {
  std::vector<std::string_view> kept;
  for (const std::string_view line : fingerprint::lines_of(environment.value)) {
    const auto parts = fingerprint::split_line(line);
    const fingerprint::Variable* variable = fingerprint::find_variable(parts ? parts->first : line);
    if (variable == nullptr || fingerprint::matters(*variable, rule.facets)) kept.push_back(line);
  }
  std::string value =
      kept.empty() && !environment.value.empty() ? std::string(fingerprint::kNone) : fingerprint::joined_lines(kept);
  environment.value = std::move(value);
  return environment;
}

Scope private_scope(std::string why) {
  Scope scope;
  scope.why_private = std::move(why);
  return scope;
}

/// `gpu_arch`: the gpu-arch facet's fact that counts.
Scope make_scope(const Rule& rule, const fingerprint::Fingerprint& fingerprint, const Fact& gpu_arch) {
  if (!rule.shared) return private_scope(std::string(rule.name) + " is never shared: " + std::string(rule.why));
  Scope scope;
  std::vector<Facet> facets(rule.facets.begin(), rule.facets.end());
  // What everybody shares has no such facet, as before there were users to part.
  if (fingerprint.has(Facet::kTrust) && !fingerprint.get(Facet::kTrust).is_none()) facets.push_back(Facet::kTrust);
  std::sort(facets.begin(), facets.end(),
            [](Facet one, Facet other) { return fingerprint::to_string(one) < fingerprint::to_string(other); });
  std::string text(kHeader);
  for (const Facet facet : facets) {
    const std::string name(fingerprint::to_string(facet));
    Fact fact = facet == Facet::kGpuArch ? gpu_arch : fingerprint.get(facet);
    if (facet == Facet::kEnvironment) fact = for_rule(std::move(fact), rule);
    std::string problem = problem_of(facet, fact);
    if (problem.empty() && facet == Facet::kEnvironment) problem = fingerprint::unknown_file_in(fact.value);
    if (!problem.empty()) {
      if (!scope.why_private.empty()) scope.why_private += "; ";
      scope.unused = scope.unused || is_missing(facet, fact);
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

using Lines = ScopeText::Lines;

/// Each facet's lines. What stands before the first facet, a header of this version or of a later one, is a facet
/// without a name: it shows only where two texts are of different forms.
std::map<std::string_view, Lines> facets_of(std::string_view text) {
  ScopeText parsed = parse_scope_text(text);
  std::map<std::string_view, Lines> facets;
  facets.emplace(std::string_view(), std::move(parsed.header));
  for (const auto& [name, lines] : parsed.facets) {
    Lines& all = facets[name];
    all.insert(all.end(), lines.begin(), lines.end());
  }
  return facets;
}

/// The lines that the other does not have, one for one.
Lines without(const Lines& lines, Lines others) {
  Lines left;
  for (const std::string_view line : lines) {
    const auto found = std::find(others.begin(), others.end(), line);
    if (found == others.end()) {
      left.push_back(line);
    } else {
      others.erase(found);
    }
  }
  return left;
}

}  // namespace

Scope scope_of(Family family, const fingerprint::Fingerprint& fingerprint) {
  return scope_of(family, fingerprint, std::string_view());
}

Scope scope_of(Family family, const fingerprint::Fingerprint& fingerprint, std::string_view architecture) {
  const Rule& rule = rule_of(family);
  const Fact& fact = fingerprint.get(Facet::kGpuArch);
  const auto devices = is_per_architecture(rule) ? architectures_of(fact) : std::vector<std::string>();
  // Without a device nothing runs here: kernels for any architecture are built and kept alike.
  if (devices.empty()) return make_scope(rule, fingerprint, fact);
  if (architecture.empty()) {
    if (devices.size() == 1) return make_scope(rule, fingerprint, fact);
    return private_scope("this host's devices are of different architectures (" + listed(devices) +
                         "), and nothing says for which of them this is");
  }
  if (std::find(devices.begin(), devices.end(), architecture) == devices.end()) {
    return private_scope("it is for architecture " + std::string(architecture) + ", and this host's devices are " +
                         listed(devices));
  }
  return make_scope(rule, fingerprint, for_architecture(fact, architecture));
}

std::vector<Scope> scopes_of(Family family, const fingerprint::Fingerprint& fingerprint) {
  const Rule& rule = rule_of(family);
  const Fact& fact = fingerprint.get(Facet::kGpuArch);
  const auto devices = is_per_architecture(rule) ? architectures_of(fact) : std::vector<std::string>();
  std::vector<Scope> scopes;
  scopes.reserve(devices.size());
  for (const std::string& architecture : devices) scopes.push_back(scope_of(family, fingerprint, architecture));
  if (scopes.empty()) scopes.push_back(scope_of(family, fingerprint));
  return scopes;
}

ScopeText parse_scope_text(std::string_view text) {
  ScopeText parsed;
  ScopeText::Lines* lines = &parsed.header;
  for (const std::string_view line : fingerprint::lines_of(text)) {
    if (line.starts_with(kFacetLine)) {
      lines = &parsed.facets.emplace_back(line.substr(kFacetLine.size()), ScopeText::Lines()).second;
    } else {
      lines->push_back(line);
    }
  }
  return parsed;
}

std::vector<Difference> compare_scopes(std::string_view ours, std::string_view theirs) {
  const auto our_facets = facets_of(ours);
  const auto their_facets = facets_of(theirs);
  std::vector<Difference> differences;
  const auto add = [&differences](std::string_view facet, const Lines& our_lines, const Lines& their_lines) {
    if (our_lines == their_lines) return;
    Difference difference{std::string(facet), fingerprint::joined_lines(without(our_lines, their_lines)),
                          fingerprint::joined_lines(without(their_lines, our_lines))};
    // The same lines in another order are another scope too.
    if (difference.ours.empty() && difference.theirs.empty()) {
      difference = {std::string(facet), fingerprint::joined_lines(our_lines), fingerprint::joined_lines(their_lines)};
    }
    differences.push_back(std::move(difference));
  };
  for (const auto& [facet, lines] : our_facets) {
    const auto found = their_facets.find(facet);
    add(facet, lines, found == their_facets.end() ? Lines() : found->second);
  }
  for (const auto& [facet, lines] : their_facets) {
    if (our_facets.find(facet) == our_facets.end()) add(facet, Lines(), lines);
  }
  std::sort(differences.begin(), differences.end(),
            [](const Difference& one, const Difference& other) { return one.facet < other.facet; });
  return differences;
}

}  // namespace inductorfs::layout
