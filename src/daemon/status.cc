// SPDX-License-Identifier: Apache-2.0
#include "status.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "report.h"
#include "sharing.h"
#include "text.h"

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
  return {{"directory", facts.settings.store}, {"blobs", usage.blobs},           {"bytes", usage.bytes},
          {"size_limit", usage.size_limit},    {"free_floor", usage.free_floor}, {"evicted", usage.evicted}};
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
  return {{"nodes", status.nodes},     {"unsealed", status.unsealed}, {"contested", status.contested},
          {"refused", status.refused}, {"foreign", status.foreign},   {"foreign_reasons", status.foreign_reasons}};
}

std::string utc(std::time_t time) {
  std::tm parts{};
  std::array<char, 32> text{};
  if (time == 0 || ::gmtime_r(&time, &parts) == nullptr) return {};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

Json facts_part(const StatusFacts& facts) {
  const FactsNews& news = facts.news;
  const std::time_t now = std::time(nullptr);
  return {{"from_file", !facts.settings.fingerprint.empty()},
          {"learned", utc(news.learned)},
          {"age_s", static_cast<uint64_t>(std::max<std::time_t>(now - news.learned, 0))},
          {"probes", news.probes},
          {"changes", news.changes},
          {"changed", utc(news.changed)},
          {"last_change", news.last_change},
          {"kept", news.kept},
          {"problem", news.problem},
          {"writers", to_string(facts.settings.writers)},
          {"environment", facts.settings.environment}};
}

Json takeover_part(const SupervisionNews& news) {
  return {{"supervisor", news.supervisor},
          {"restarts", news.restarts},
          {"last_end", news.last_end},
          {"last_crash", utc(news.last_crash)},
          {"upgrades", news.upgrades},
          {"upgrades_failed", news.upgrades_failed},
          {"upgrades_taken_back", news.upgrades_taken_back},
          {"safe_mode", news.safe_mode},
          {"slots", news.slots}};
}

Json warnings_of(const StatusFacts& facts) {
  Json warnings = Json::array();
  if (facts.supervision.supervisor == 0) {
    warnings.push_back("the supervisor is gone: a crash would end the mount; unmount it and mount again");
  }
  if (facts.supervision.safe_mode) {
    warnings.push_back("safe mode after crashes (the last: " + facts.supervision.last_end +
                       "): the remote is off; leave it with inductorfs upgrade");
  }
  if (facts.supervision.log_full) {
    warnings.push_back(
        "the kernel knows more files of this mount than a next worker could be told of: a crash would lose open files; "
        "let the kernel forget some (echo 2 > /proc/sys/vm/drop_caches)");
  }
  const std::shared_ptr<const HostState> host = facts.layers.host->state();
  if (const std::string warning = sharing_warning(facts.settings, host->facts); !warning.empty()) {
    warnings.push_back(warning);
  }
  for (const std::string& kept : facts.news.kept) {
    warnings.push_back("not learned by the last look, the old value counts for a while: " + kept);
  }
  for (const fingerprint::Facet facet : fingerprint::kAllFacets) {
    const fingerprint::Fact& fact = host->facts.get(facet);
    if (fact.known && !fact.problem.empty()) {
      warnings.push_back(std::string(fingerprint::to_string(facet)) + ": " + fact.problem);
    }
  }
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
         count("publish.kept_local") + " kept local, " + count("lookup.lost") + " lost" +
         (number_at(counters, "publish.parked") > 0 ? ", " + count("publish.parked") + " parked after errors" : "");
}

/// When the facts were learned, and what has become of them since.
std::string facts_text(const Json& facts) {
  std::string text = flag_at(facts, "from_file") ? "from a file, read " : "learned ";
  text += human_seconds(number_at(facts, "age_s")) + " ago, " + std::to_string(number_at(facts, "changes")) +
          " changes in " + std::to_string(number_at(facts, "probes")) + " looks";
  if (!text_at(facts, "problem").empty()) text += "; the last one failed: " + text_at(facts, "problem");
  return text;
}

/// Nothing while nothing has happened.
std::string takeover_text(const Json& takeover) {
  const uint64_t restarts = number_at(takeover, "restarts");
  const uint64_t upgrades = number_at(takeover, "upgrades");
  if (restarts == 0 && upgrades == 0 && !flag_at(takeover, "safe_mode")) return {};
  std::string text = std::to_string(restarts) + " restarts after crashes";
  if (restarts > 0)
    text += " (the last: " + text_at(takeover, "last_end") + ", " + text_at(takeover, "last_crash") + ")";
  text += ", " + std::to_string(upgrades) + " upgrades";
  if (const uint64_t failed = number_at(takeover, "upgrades_failed"); failed > 0) {
    text += ", " + std::to_string(failed) + " of them failed";
  }
  if (const uint64_t back = number_at(takeover, "upgrades_taken_back"); back > 0) {
    text += ", " + std::to_string(back) + " taken back because the new program crashed";
  }
  if (flag_at(takeover, "safe_mode")) text += "; SAFE MODE: the remote is off";
  return line("takeover", text);
}

std::string foreign_text(const Json& files) {
  const uint64_t count = number_at(files, "foreign");
  if (count == 0) return {};
  std::string text = line("foreign", std::to_string(count) + " artefacts stay here: their writers do not have this " +
                                         "mount's environment (see --python, --environment, --writers)");
  for (const Json& reason : part_of(files, "foreign_reasons")) text += line("", plain_item(reason));
  return text;
}

/// "torch version=2.15.0\n..." of each facet, under the first label.
std::string facets_text(const std::string& scope_text) {
  std::string text;
  for (const auto& [name, value] : facets_of(scope_text)) {
    text += line(text.empty() ? "facets" : "", printable(name)) + indented(value, std::string(18, ' '));
  }
  return text;
}

std::string nearest_text(const Json& nearest) {
  const std::string none = text_at(nearest, "why_none");
  if (!nearest.is_object() || nearest.empty()) return {};
  if (!none.empty()) return line("nearest", none);
  std::string text =
      line("nearest", text_at(nearest, "scope") + ", of " + std::to_string(number_at(nearest, "others")) +
                          " other scopes of these facets");
  for (const Json& one : part_of(nearest, "differences")) {
    text += line("", "differs in " + text_at(one, "facet"));
    text += indented(lines_at(one, "ours"), std::string(18, ' ') + "- here:  ");
    text += indented(lines_at(one, "theirs"), std::string(18, ' ') + "+ there: ");
  }
  return text;
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
                  {"private_families", private_part(facts.layers.host->state()->scopes)},
                  {"facts", facts_part(facts)},
                  {"takeover", takeover_part(facts.supervision)}});
}

std::string where_json(const std::string& mountpoint, const std::vector<AlsoState>& also) {
  return to_line({{"mountpoint", mountpoint}, {"pid", ::getpid()}, {"also", also_list(also)}});
}

std::string explanation_json(const vfs::Explanation& e, const Json& nearest) {
  Json answer = {
      {"path", e.path},      {"canonical", e.canonical},   {"family", e.family},           {"rule", e.rule},
      {"scope", e.scope},    {"scope_text", e.scope_text}, {"why_private", e.why_private}, {"digest", e.digest},
      {"origin", e.origin},  {"where", e.where},           {"visible", e.visible},         {"why", e.why},
      {"publish", e.publish}};
  Json facets = Json::object();
  for (const auto& [name, value] : facets_of(e.scope_text)) facets[name] = value;
  answer["facets"] = std::move(facets);
  answer["nearest"] = nearest;
  return to_line(answer);
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
  const Json& facts = part_of(status, "facts");
  text += line("facts", facts_text(facts));
  text += takeover_text(part_of(status, "takeover"));
  text += list_text("last change", part_of(facts, "last_change"), plain_item);
  text += list_text("also", part_of(status, "also"), [](const Json& item) {
    return text_at(item, "path") + " shows " + text_at(item, "name") + ": " + text_at(item, "state");
  });
  text += list_text("private", part_of(status, "private_families"),
                    [](const Json& item) { return text_at(item, "family") + ": " + text_at(item, "why"); });
  text += foreign_text(files);
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
  text += line("visible", (flag_at(explanation, "visible") ? "yes: " : "no: ") + text_at(explanation, "why"));
  const std::string publish = text_at(explanation, "publish");
  if (!publish.empty()) text += line("publish", publish);
  text += facets_text(lines_at(explanation, "scope_text"));
  return text + nearest_text(part_of(explanation, "nearest"));
}

}  // namespace inductorfs::daemon
