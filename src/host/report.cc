// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/host/report.h"

#include <algorithm>
#include <map>
#include <utility>

#include "inductorfs/config/json.h"
#include "inductorfs/config/text.h"
#include "inductorfs/host/host.h"

namespace inductorfs::host {

using config::flag_at;
using config::indented;
using config::Json;
using config::lines_at;
using config::part_of;
using config::plain_item;
using config::text_at;

namespace {

using fingerprint::Facet;
using fingerprint::Fact;
using fingerprint::Fingerprint;

constexpr size_t kShortId = 12;

std::string name_of(Facet facet) { return std::string(fingerprint::to_string(facet)); }

/// Shared families that are private as long as this facet is not known.
Json families_without(Facet facet) {
  Json families = Json::array();
  for (const layout::Rule& rule : layout::all_rules()) {
    const bool needs = std::find(rule.facets.begin(), rule.facets.end(), facet) != rule.facets.end();
    if (rule.shared && needs) families.push_back(std::string(rule.name));
  }
  return families;
}

Json ids_of(const std::vector<layout::Scope>& scopes) {
  Json ids = Json::array();
  for (const layout::Scope& scope : scopes) {
    if (!scope.id.empty()) ids.push_back(scope.id);
  }
  return ids;
}

Json names_of(const layout::Rule& rule) {
  Json names = Json::array();
  for (const Facet facet : rule.facets) names.push_back(name_of(facet));
  return names;
}

std::string joined(const Json& list, std::string_view separator = " ") {
  std::string text;
  if (!list.is_array()) return text;
  for (const Json& item : list) {
    if (!text.empty()) text += separator;
    text += plain_item(item);
  }
  return text;
}

std::string facet_text(const std::string& name, const Json& facet) {
  const bool known = flag_at(facet, "known");
  std::string text = name + (known ? "" : ": NOT KNOWN: " + text_at(facet, "problem"));
  const std::string source = text_at(facet, "source");
  text += source.empty() ? "\n" : " (" + source + ")\n";
  if (known) text += indented(lines_at(facet, "value"));
  if (known && !text_at(facet, "problem").empty()) text += "    ! " + text_at(facet, "problem") + "\n";
  text += indented(lines_at(facet, "details"), "    . ");
  if (known) text += "    sha256 " + text_at(facet, "digest") + "\n";
  const std::string lost = joined(part_of(facet, "makes_private"), ", ");
  if (!lost.empty()) text += "    private because of it: " + lost + "\n";
  return text;
}

std::string padded(std::string text, size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text;
}

std::string scope_cell(const Json& family) {
  const Json& ids = part_of(family, "scopes");
  std::string text;
  for (const Json& id : ids) text += (text.empty() ? "" : ",") + plain_item(id).substr(0, kShortId);
  return text.empty() ? "-" : text;
}

/// The pair of scopes, one of each side, that differ in the fewest facets.
std::vector<layout::Difference> least_differences(const std::vector<layout::Scope>& ours,
                                                  const std::vector<layout::Scope>& theirs) {
  std::vector<layout::Difference> least;
  for (const layout::Scope& one : ours) {
    for (const layout::Scope& other : theirs) {
      if (one.id.empty() || other.id.empty()) continue;
      std::vector<layout::Difference> differences = layout::compare_scopes(one.text, other.text);
      if (least.empty() || differences.size() < least.size()) least = std::move(differences);
    }
  }
  return least;
}

bool have_common(const std::vector<layout::Scope>& ours, const std::vector<layout::Scope>& theirs) {
  return std::any_of(ours.begin(), ours.end(), [&theirs](const layout::Scope& one) {
    return !one.id.empty() &&
           std::any_of(theirs.begin(), theirs.end(), [&one](const layout::Scope& other) { return other.id == one.id; });
  });
}

Json compared_family(const layout::Rule& rule, const Scopes& ours, const Scopes& theirs) {
  const std::vector<layout::Scope>& here = ours.all_of(rule.family);
  const std::vector<layout::Scope>& there = theirs.all_of(rule.family);
  const bool shared = have_common(here, there);
  Json family = {{"family", rule.name}, {"shared", shared}};
  if (shared) return family;
  const std::string why_here = ids_of(here).empty() ? ours.of(rule.family).why_private : "";
  const std::string why_there = ids_of(there).empty() ? theirs.of(rule.family).why_private : "";
  if (!why_here.empty()) family["private_here"] = why_here;
  if (!why_there.empty()) family["private_there"] = why_there;
  family["differences"] = differences_report(least_differences(here, there));
  return family;
}

std::string part_text(const Json& difference, const char* margin) {
  const auto side = [&](const char* label, const char* name) {
    const std::string value = lines_at(difference, name);
    const std::string lines = value.empty() ? std::string("(nothing)\n") : value + "\n";
    return indented(lines, std::string(margin) + label);
  };
  return side("- here:  ", "ours") + side("+ there: ", "theirs");
}

/// A family's line, and what parts the hosts, each facet once for all families: others only name it.
std::string family_text(const Json& family, std::map<std::string, Json>& facets) {
  std::string text = "    " + padded(text_at(family, "family"), 20);
  if (flag_at(family, "shared")) return text + "shared\n";
  text += "NOT shared";
  std::string parts;
  for (const Json& difference : part_of(family, "differences")) {
    const std::string name = text_at(difference, "facet");
    parts += (parts.empty() ? ": " : ", ") + name;
    facets.emplace(name, difference);
  }
  for (const auto& [key, where] : {std::pair{"private_here", "here"}, std::pair{"private_there", "there"}}) {
    const std::string why = text_at(family, key);
    if (!why.empty()) parts += std::string(parts.empty() ? ": " : "; ") + "private " + where + ": " + why;
  }
  return text + parts + "\n";
}

}  // namespace

Json fingerprint_report(const Fingerprint& facts) {
  Json report = config::from_text(facts.to_json());
  for (const Facet facet : fingerprint::kAllFacets) {
    const Fact& fact = facts.get(facet);
    Json& json = report["facets"][name_of(facet)];
    if (!json.is_object()) json = {{"known", false}, {"problem", fact.problem}};
    if (fact.known) {
      json["digest"] = fact.digest().to_hex();
    } else {
      json["makes_private"] = families_without(facet);
    }
  }
  Json scopes = Json::object();
  const Scopes all(facts);
  for (const layout::Rule& rule : layout::all_rules()) {
    const Json ids = ids_of(all.all_of(rule.family));
    Json& family = scopes[std::string(rule.name)];
    family = {{"scopes", ids}};
    if (ids.empty()) family["why_private"] = all.of(rule.family).why_private;
  }
  report["families"] = std::move(scopes);
  return report;
}

std::string fingerprint_text(const Json& report) {
  std::string text;
  for (const auto& [name, facet] : part_of(report, "facets").items()) text += facet_text(name, facet);
  text += "scopes\n";
  for (const auto& [name, family] : part_of(report, "families").items()) {
    const std::string ids = joined(part_of(family, "scopes"));
    text += "    " + padded(name, 20) + (ids.empty() ? "private: " + text_at(family, "why_private") : ids) + "\n";
  }
  return text;
}

Json families_report(const Fingerprint& facts) {
  const Scopes scopes(facts);
  Json families = Json::array();
  for (const layout::Rule& rule : layout::all_rules()) {
    families.push_back({{"family", rule.name},
                        {"pattern", rule.pattern},
                        {"shared", rule.shared},
                        {"facets", names_of(rule)},
                        {"seal", layout::to_string(rule.seal)},
                        {"contest", layout::to_string(rule.contest)},
                        {"scopes", ids_of(scopes.all_of(rule.family))},
                        {"why_private", scopes.of(rule.family).why_private},
                        {"why", rule.why},
                        {"source", rule.source}});
  }
  return {{"families", families}};
}

std::string families_text(const Json& report) {
  std::string text = padded("family", 20) + padded("shared", 8) + padded("seal", 17) + padded("contest", 15) +
                     padded("scope", kShortId + 2) + "facets\n";
  for (const Json& family : part_of(report, "families")) {
    const bool shared = flag_at(family, "shared");
    const bool here = !part_of(family, "scopes").empty();
    text += padded(text_at(family, "family"), 20) + padded(!shared ? "no" : (here ? "yes" : "not here"), 8) + " ";
    text += padded(shared ? text_at(family, "seal") : "-", 16) + padded(shared ? text_at(family, "contest") : "-", 15);
    text += padded(scope_cell(family), kShortId + 2) + joined(part_of(family, "facets"), ", ") + "\n";
    text += "    paths: " + text_at(family, "pattern") + "\n    why: " + text_at(family, "why") + "\n";
    if (shared && !here) text += "    private here: " + text_at(family, "why_private") + "\n";
  }
  return text;
}

Json differences_report(const std::vector<layout::Difference>& differences) {
  Json list = Json::array();
  for (const layout::Difference& one : differences) {
    list.push_back({{"facet", one.facet}, {"ours", one.ours}, {"theirs", one.theirs}});
  }
  return list;
}

Json comparison_report(const Fingerprint& ours, const Fingerprint& theirs) {
  const Scopes here(ours);
  const Scopes there(theirs);
  Json families = Json::array();
  for (const layout::Rule& rule : layout::all_rules()) {
    if (rule.shared) families.push_back(compared_family(rule, here, there));
  }
  return {{"families", families}};
}

std::string comparison_text(const Json& report) {
  std::map<std::string, Json> facets;
  std::string text = "families\n";
  for (const Json& family : part_of(report, "families")) text += family_text(family, facets);
  if (facets.empty()) return text;
  text += "facets that differ\n";
  for (const auto& [name, difference] : facets) text += "    " + name + "\n" + part_text(difference, "        ");
  return text;
}

bool have_same_facets(std::string_view one, std::string_view other) {
  const auto names = [](std::string_view scope) {
    std::vector<std::string> list;
    for (const auto& [name, lines] : layout::parse_scope_text(scope).facets) {
      if (name != to_string(Facet::kTrust)) list.emplace_back(name);
    }
    return list;
  };
  return names(one) == names(other);
}

Json nearest_report(const std::string& text, const std::vector<remote::ScopeInformation>& others) {
  uint64_t count = 0;
  const remote::ScopeInformation* nearest = nullptr;
  std::vector<layout::Difference> least;
  for (const remote::ScopeInformation& other : others) {
    if (other.text == text || !have_same_facets(other.text, text)) continue;
    ++count;
    std::vector<layout::Difference> differences = layout::compare_scopes(text, other.text);
    if (nearest != nullptr && differences.size() >= least.size()) continue;
    nearest = &other;
    least = std::move(differences);
  }
  if (nearest == nullptr) return {{"why_none", "no other scope of these facets is in the cluster"}};
  return {{"scope", nearest->id},
          {"family", nearest->family},
          {"others", count},
          {"differences", differences_report(least)}};
}

}  // namespace inductorfs::host
