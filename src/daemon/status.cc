// SPDX-License-Identifier: Apache-2.0
#include "status.h"

#include <unistd.h>

#include "json.h"
#include "layers.h"

namespace inductorfs::daemon {
namespace {

Json also_list(const std::vector<AlsoState>& also) {
  Json list = Json::array();
  for (const AlsoState& state : also) {
    list.push_back({{"name", state.also.name}, {"path", state.also.path}, {"state", state.to_string()}});
  }
  return list;
}

Json store_part(const StatusFacts& facts) {
  const store::StoreUsage usage = facts.layers.store->usage();
  return {{"directory", facts.settings.store},
          {"blobs", usage.blobs},
          {"bytes", usage.bytes},
          {"size_limit", usage.size_limit},
          {"evicted", usage.evicted}};
}

Json remote_part(const StatusFacts& facts) {
  const remote::Remote::Health health = facts.layers.remote->health();
  Json part = {{"configured", !facts.settings.remote.empty()},
               {"address", facts.settings.remote.empty() ? std::string() : health.address},
               {"reachable", !facts.settings.remote.empty() && health.reachable},
               {"last_error", health.last_error}};
  if (facts.server.facts) {
    part["version"] = facts.server.facts->version;
    part["eviction_policy"] = facts.server.facts->eviction_policy;
    part["memory_limit"] = facts.server.facts->memory_limit;
  }
  return part;
}

Json catalog_part(const catalog::CatalogStatus& status) {
  return {{"entries", status.entries},
          {"hidden", status.hidden},
          {"queued", status.queued},
          {"synced", status.synced},
          {"oldest_queued_error", status.oldest_queued_error},
          {"queued_paths", status.queued_paths}};
}

Json file_system_part(const vfs::FileSystemStatus& status) {
  return {{"nodes", status.nodes},
          {"unsealed", status.unsealed},
          {"contested", status.contested},
          {"refused", status.refused}};
}

Json warnings_of(const StatusFacts& facts) {
  Json warnings = Json::array();
  if (!facts.server.wrong.empty()) warnings.push_back("the remote cannot be used: " + facts.server.wrong);
  if (facts.server.facts) {
    for (const std::string& warning : facts.server.facts->warnings) warnings.push_back(warning);
  }
  for (const AlsoState& state : facts.also) {
    if (state.kind == AlsoState::Kind::kFailed)
      warnings.push_back("not shown at " + state.also.path + ": " + state.why);
  }
  return warnings;
}

Json private_part(const Scopes& scopes) {
  Json list = Json::array();
  for (const PrivateFamily& family : private_families(scopes)) {
    list.push_back({{"family", family.family}, {"why", family.why}});
  }
  return list;
}

// ---- text

std::string text_at(const Json& object, const char* name) {
  const auto at = object.find(name);
  return at != object.end() && at->is_string() ? printable(at->get<std::string>()) : std::string();
}

uint64_t number_at(const Json& object, const char* name) {
  const auto at = object.find(name);
  return at != object.end() && at->is_number_unsigned() ? at->get<uint64_t>() : 0;
}

const Json& part_of(const Json& object, const char* name) {
  static const Json kNothing = Json::object();
  const auto at = object.find(name);
  return at != object.end() ? *at : kNothing;
}

std::string line(std::string_view label, const std::string& value) {
  constexpr size_t kWidth = 14;
  std::string text(label);
  text.resize(std::max(kWidth, text.size() + 1), ' ');
  return text + value + "\n";
}

std::string remote_text(const Json& remote) {
  const auto configured = remote.find("configured");
  if (configured == remote.end() || !configured->is_boolean() || !configured->get<bool>()) return "none: a local cache";
  const auto reachable = remote.find("reachable");
  const bool up = reachable != remote.end() && reachable->is_boolean() && reachable->get<bool>();
  std::string text = text_at(remote, "address") + (up ? ", reachable" : ", NOT reachable");
  if (up && remote.contains("version")) text += ", Redis " + text_at(remote, "version");
  if (!up && !text_at(remote, "last_error").empty()) text += ": " + text_at(remote, "last_error");
  return text;
}

std::string catalog_text(const Json& catalog) {
  std::string text = std::to_string(number_at(catalog, "entries")) + " entries, " +
                     std::to_string(number_at(catalog, "hidden")) + " hidden here, " +
                     std::to_string(number_at(catalog, "queued")) + " queued";
  const std::string why = text_at(catalog, "oldest_queued_error");
  if (!why.empty()) text += " (oldest: " + why + ")";
  return text;
}

std::string counter_text(const Json& counters) {
  const auto count = [&](const char* name) { return std::to_string(number_at(counters, name)); };
  return count("lookup.first_touch") + " first touches, " + count("fetch.blobs") + " blobs fetched (" +
         human_bytes(number_at(counters, "fetch.bytes")) + "), " + count("publish.published") + " groups published, " +
         count("publish.kept_local") + " kept local, " + count("lookup.lost") + " lost";
}

std::string list_text(std::string_view label, const Json& list, const std::function<std::string(const Json&)>& show) {
  std::string text;
  if (!list.is_array()) return text;
  for (const Json& item : list) {
    text += line(text.empty() ? label : std::string_view(), show(item));
  }
  return text;
}

std::string plain_item(const Json& item) { return item.is_string() ? printable(item.get<std::string>()) : ""; }

std::string indented(std::string_view value) {
  std::string text = "    ";
  for (const char c : value) {
    text.push_back(c);
    if (c == '\n') text += "    ";
  }
  while (!text.empty() && (text.back() == ' ' || text.back() == '\n')) text.pop_back();
  return text.empty() ? text : text + "\n";
}

}  // namespace

std::string status_json(const StatusFacts& facts) {
  Json counters = Json::object();
  for (const auto& [name, value] : facts.layers.counters.snapshot()) counters[name] = value;
  return to_line({{"version", INDUCTORFS_VERSION},
                  {"mountpoint", facts.settings.mountpoint},
                  {"pid", ::getpid()},
                  {"store", store_part(facts)},
                  {"remote", remote_part(facts)},
                  {"catalog", catalog_part(facts.layers.catalog->status())},
                  {"file_system", file_system_part(facts.layers.file_system->status())},
                  {"counters", counters},
                  {"also", also_list(facts.also)},
                  {"warnings", warnings_of(facts)},
                  {"private_families", private_part(*facts.layers.scopes)}});
}

std::string where_json(const std::string& mountpoint, const std::vector<AlsoState>& also) {
  return to_line({{"mountpoint", mountpoint}, {"pid", ::getpid()}, {"also", also_list(also)}});
}

std::string explanation_json(const vfs::Explanation& e) {
  return to_line({{"path", e.path},
                  {"canonical", e.canonical},
                  {"family", e.family},
                  {"rule", e.rule},
                  {"scope", e.scope},
                  {"scope_text", e.scope_text},
                  {"why_private", e.why_private},
                  {"digest", e.digest},
                  {"origin", e.origin},
                  {"where", e.where},
                  {"visible", e.visible},
                  {"why", e.why},
                  {"publish", e.publish}});
}

std::string status_text(std::string_view json) {
  const Json status = Json::parse(json, nullptr, false);
  if (!status.is_object()) return {};
  const Json& store = part_of(status, "store");
  const Json& files = part_of(status, "file_system");
  std::string text;
  text += line("mountpoint", text_at(status, "mountpoint") + " (pid " + part_of(status, "pid").dump() + ", version " +
                                 text_at(status, "version") + ")");
  text += line("remote", remote_text(part_of(status, "remote")));
  text += line("catalog", catalog_text(part_of(status, "catalog")));
  text +=
      line("store", text_at(store, "directory") + ": " + std::to_string(number_at(store, "blobs")) + " blobs, " +
                        human_bytes(number_at(store, "bytes")) + " of " + human_bytes(number_at(store, "size_limit")) +
                        ", " + std::to_string(number_at(store, "evicted")) + " evicted");
  text += line("files", std::to_string(number_at(files, "nodes")) + " known to the kernel, " +
                            std::to_string(number_at(files, "unsealed")) + " not complete yet, " +
                            std::to_string(number_at(files, "contested")) + " unfinished sets");
  text += line("traffic", counter_text(part_of(status, "counters")));
  text += list_text("also", part_of(status, "also"), [](const Json& item) {
    return text_at(item, "path") + " shows " + text_at(item, "name") + ": " + text_at(item, "state");
  });
  text += list_text("private", part_of(status, "private_families"),
                    [](const Json& item) { return text_at(item, "family") + ": " + text_at(item, "why"); });
  text += list_text("refused", part_of(files, "refused"), plain_item);
  text += list_text("warning", part_of(status, "warnings"), plain_item);
  return text;
}

std::string explanation_text(std::string_view json) {
  const Json explanation = Json::parse(json, nullptr, false);
  if (!explanation.is_object()) return {};
  std::string text;
  for (const char* name :
       {"path", "canonical", "family", "rule", "scope", "why_private", "digest", "origin", "where"}) {
    const std::string value = text_at(explanation, name);
    if (!value.empty()) text += line(name, value);
  }
  const auto visible = explanation.find("visible");
  const bool shown = visible != explanation.end() && visible->is_boolean() && visible->get<bool>();
  text += line("visible", (shown ? "yes: " : "no: ") + text_at(explanation, "why"));
  const std::string publish = text_at(explanation, "publish");
  if (!publish.empty()) text += line("publish", publish);
  return text;
}

std::string fingerprint_text(const fingerprint::Fingerprint& facts) {
  std::string text;
  for (const fingerprint::Facet facet : fingerprint::kAllFacets) {
    const fingerprint::Fact& fact = facts.get(facet);
    text += std::string(fingerprint::to_string(facet)) + (fact.known ? "" : ": NOT KNOWN: " + printable(fact.problem));
    text += fact.source.empty() ? "\n" : " (" + printable(fact.source) + ")\n";
    if (fact.known) text += indented(fact.value);
  }
  const Scopes scopes(facts);
  text += "scopes\n";
  for (const layout::Rule& rule : layout::all_rules()) {
    const layout::Scope& scope = scopes.of(rule.family);
    text += "    " + line(rule.name, scope.id.empty() ? "private: " + printable(scope.why_private) : scope.id);
  }
  return text;
}

std::string human_bytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  uint64_t tenths = bytes * 10;
  if (bytes > UINT64_MAX / 10) tenths = UINT64_MAX;
  while (tenths >= 10240 && unit + 1 < std::size(kUnits)) {
    tenths /= 1024;
    ++unit;
  }
  std::string text = std::to_string(tenths / 10);
  if (unit > 0) text += "." + std::to_string(tenths % 10);
  return text + " " + kUnits[unit];
}

}  // namespace inductorfs::daemon
