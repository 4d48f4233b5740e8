// SPDX-License-Identifier: Apache-2.0
#include "manifest.h"

#include <algorithm>
#include <set>
#include <utility>

#include "inductorfs/config/json.h"
#include "inductorfs/fingerprint/facet_text.h"
#include "inductorfs/layout/layout.h"
#include "inductorfs/layout/scope.h"

namespace inductorfs::archive {

using config::Json;

namespace {

constexpr const char* kFormat = "inductorfs-archive";
constexpr uint64_t kVersion = 1;
constexpr uint32_t kPermissions = 0777;

constexpr int kMostDepth = 3;
/// Events of the parser: an object has two, and each of its members two.
constexpr uint64_t kMostValues = kMostEntries * 32;

std::string text_of(const Json& object, const char* name) {
  const auto at = object.is_object() ? object.find(name) : object.end();
  return at != object.end() && at->is_string() ? at->get<std::string>() : std::string();
}

uint64_t number_of(const Json& object, const char* name, uint64_t fallback) {
  const auto at = object.is_object() ? object.find(name) : object.end();
  return at != object.end() && at->is_number_unsigned() ? at->get<uint64_t>() : fallback;
}

Json entry_json(const codec::Entry& entry, size_t scope) {
  return Json::object({{"scope", scope},
                       {"path", entry.path},
                       {"digest", entry.digest.to_hex()},
                       {"size", entry.size},
                       {"mode", entry.mode},
                       {"mtime_ns", entry.mtime_ns},
                       {"origin", entry.origin}});
}

/// Facets that every host's scope of this family has, whoever shares it.
std::set<std::string> facets_of(std::string_view text) {
  std::set<std::string> names;
  for (const auto& [name, lines] : layout::parse_scope_text(text).facets) names.emplace(name);
  names.erase(std::string(to_string(fingerprint::Facet::kTrust)));
  return names;
}

/// With whom the artefacts of a scope are shared.
std::string audience_of(std::string_view text) {
  for (const auto& [name, lines] : layout::parse_scope_text(text).facets) {
    if (name == to_string(fingerprint::Facet::kTrust)) return fingerprint::joined_lines(lines);
  }
  return std::string(kEverybody);
}

std::string problem_of(const remote::ScopeInformation& scope, const Audience& audience) {
  if (scope.family.empty() || scope.family.size() > remote::kScopeFamilyLimit ||
      scope.text.size() > remote::kScopeTextLimit) {
    return "a scope has too much text";
  }
  if (codec::digest_of(scope.text).to_hex() != scope.id) return "the id of a scope is not the digest of its text";
  const std::string who = audience_of(scope.text);
  if (audience.all || audience.named.contains(who)) return {};
  return "for " + who + " only, whose jobs would run it: to import it, give --for " + who + ", or --for all";
}

/// An entry whose scope or digest cannot be read has no digest and no path.
codec::Entry entry_of(const Json& json) {
  codec::Entry entry;
  const auto digest = codec::Digest::from_hex(text_of(json, "digest"));
  if (!digest) return entry;
  entry.digest = *digest;
  entry.path = text_of(json, "path");
  entry.size = number_of(json, "size", UINT64_MAX);
  entry.mode = static_cast<uint32_t>(number_of(json, "mode", 0) & kPermissions);
  const auto mtime = json.find("mtime_ns");
  if (mtime != json.end() && mtime->is_number_integer()) entry.mtime_ns = mtime->get<int64_t>();
  entry.origin = text_of(json, "origin").substr(0, codec::kOriginLimit);
  return entry;
}

}  // namespace

std::string why_unfit(const codec::Entry& entry, const remote::ScopeInformation& scope) {
  if (!codec::is_clean_path(entry.path)) return "a path is not one of a cluster";
  if (entry.size > kArtefactLimit) return "larger than the default of --artefact-limit";
  const layout::Classification found = layout::classify(entry.path);
  const layout::Rule& rule = layout::rule_of(found.family);
  const std::string remedy = ": if the configuration of the mounts changes families, name it with --config";
  if (!rule.shared || found.canonical != entry.path) return "a path is of no shared family" + remedy;
  std::set<std::string> facets;
  for (const fingerprint::Facet facet : rule.facets) facets.emplace(to_string(facet));
  return facets == facets_of(scope.text) ? "" : "a path is of another family than its scope" + remedy;
}

std::string manifest_text(const std::vector<ArchivedScope>& scopes) {
  Json list = Json::array();
  Json entries = Json::array();
  for (const ArchivedScope& one : scopes) {
    for (const codec::Entry& entry : one.entries) entries.push_back(entry_json(entry, list.size()));
    list.push_back({{"id", one.scope.id}, {"family", one.scope.family}, {"text", one.scope.text}});
  }
  return config::to_line(
      Json::object({{"format", kFormat}, {"version", kVersion}, {"scopes", list}, {"entries", entries}}));
}

Result<std::vector<ArchivedScope>> read_manifest(std::string_view text, const Audience& audience, Report& report) {
  // What would take a hundred times the manifest's size as memory is not even kept.
  uint64_t values = 0;
  const auto is_kept = [&values](int depth, Json::parse_event_t, const Json&) {
    return depth <= kMostDepth && ++values <= kMostValues;
  };
  const Json manifest = Json::parse(text, is_kept, false);
  if (values > kMostValues) return fail(ErrorCode::kCorrupt, "the archive's manifest has too many values");
  if (!manifest.is_object() || text_of(manifest, "format") != kFormat) {
    return fail(ErrorCode::kCorrupt, "this is no archive of inductorfs export: its manifest is of another format");
  }
  if (number_of(manifest, "version", 0) != kVersion) {
    return fail(ErrorCode::kNotSupported, "the archive is of a newer version: import it with that release");
  }
  const auto listed = manifest.find("scopes");
  const auto entries = manifest.find("entries");
  if (listed == manifest.end() || !listed->is_array() || listed->size() > remote::kAnnouncedScopesLimit ||
      entries == manifest.end() || !entries->is_array() || entries->size() > kMostEntries) {
    return fail(ErrorCode::kCorrupt, "the archive's manifest has no lists of scopes and entries, or too long ones");
  }
  std::vector<ArchivedScope> scopes;
  std::vector<std::string> problems;
  for (const Json& json : *listed) {
    scopes.push_back({{text_of(json, "id"), text_of(json, "family"), text_of(json, "text")}, {}});
    problems.push_back(problem_of(scopes.back().scope, audience));
  }
  for (const Json& json : *entries) {
    const uint64_t scope = number_of(json, "scope", UINT64_MAX);
    codec::Entry entry = entry_of(json);
    std::string problem = scope < scopes.size() ? problems[scope] : "an entry is of no scope";
    if (problem.empty()) problem = why_unfit(entry, scopes[scope].scope);
    if (!problem.empty()) {
      ++report.refused[problem];
    } else {
      scopes[scope].entries.push_back(std::move(entry));
    }
  }
  std::erase_if(scopes, [](const ArchivedScope& one) { return one.entries.empty(); });
  for (const ArchivedScope& one : scopes) report.audience.insert(audience_of(one.scope.text));
  return scopes;
}

}  // namespace inductorfs::archive
