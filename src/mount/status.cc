// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/mount/status.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "inductorfs/config/json.h"
#include "inductorfs/config/text.h"
#include "inductorfs/host/report.h"
#include "inductorfs/mount/cluster_control.h"
#include "inductorfs/mount/sharing.h"
#include "inductorfs/mount/worker_tree.h"
#include "inductorfs/places/also.h"
#include "mount/cluster/signatures.h"
#include "mount/processes/asked_processes.h"
#include "mount/processes/store_place.h"
#include "mount/processes/worker_filter.h"

namespace inductorfs::mount {

using config::Json;
using config::to_line;

namespace {

/// Nobody has said anything of a place that the mounter could not be asked about.
Json also_list(const std::vector<config::Also>& also, const std::vector<std::string>& states) {
  Json list = Json::array();
  for (size_t i = 0; i < also.size(); ++i) {
    const std::string state = i < states.size() ? states[i] : "not known";
    list.push_back({{"name", also[i].name}, {"path", also[i].path}, {"state", state}});
  }
  return list;
}

Json store_part(const StatusFacts& facts) {
  const store::StoreUsage& usage = facts.store.usage;
  return {{"directory", path_on_host(facts.settings.store, facts.settings.store_root)},
          {"blobs", usage.blobs},
          {"bytes", usage.bytes},
          {"size_limit", usage.size_limit},
          {"free_floor", usage.free_floor},
          {"evicted", usage.evicted}};
}

Json remote_part(const StatusFacts& facts) {
  const remote::Operators::Health health = facts.layers.remote.operators->health();
  const remote::WriteCondition::Refusal refusal = facts.layers.writes->refusal();
  Json part = {{"configured", !facts.settings.remote.empty()},
               {"address", facts.settings.remote.empty() ? std::string() : health.address},
               {"reachable", !facts.settings.remote.empty() && health.reachable},
               {"last_error", health.last_error},
               {"refuses_writes", refusal.why},
               {"refuses_since", config::utc(refusal.since)},
               {"publishes", !facts.settings.remote.empty() && why_nothing_is_published(facts.settings).empty()},
               {"read_only", facts.settings.read_only}};
  if (facts.layers.signatures) part["signing_key"] = facts.layers.signatures->public_line();
  if (facts.server.facts) part.update(server_part(*facts.server.facts));
  if (facts.server.missing_nodes) part["missing_nodes"] = *facts.server.missing_nodes;
  return part;
}

Json catalog_part(const catalog::CatalogStatus& status) {
  return {{"entries", status.entries},
          {"hidden", status.hidden},
          {"start_lists", status.start_lists},
          {"queued", status.queued},
          {"synced", status.synced},
          {"oldest_queued_error", status.oldest_queued_error},
          {"queued_paths", status.queued_paths}};
}

Json file_system_part(const StatusFacts& facts, const vfs::FileSystemStatus& status) {
  Json roots = Json::array();
  for (const auto& root : status.first_roots) {
    Json one = {{"path", root.path}, {"owner", root.owner}, {"shared_with", root.shared_with}};
    if (!root.environment.empty()) one["environment"] = root.environment;
    roots.push_back(std::move(one));
  }
  Json users = Json::array();
  for (const auto& one : status.users) {
    const auto requests = facts.requests.find(one.user);
    users.push_back({{"user", one.user},
                     {"bytes", one.bytes},
                     {"files", one.files},
                     {"requests", requests == facts.requests.end() ? 0 : requests->second},
                     {"limited", one.is_limited},
                     {"refused", one.refused}});
  }
  return {{"users", std::move(users)},
          {"users_known", status.users_known},
          {"user_bytes", status.user_bytes},
          {"user_files", status.user_files},
          {"user_requests", facts.settings.user_requests},
          {"roots", status.roots},
          {"first_roots", std::move(roots)},
          {"nodes", status.nodes},
          {"unsealed", status.unsealed},
          {"contested", status.pending_sets},
          {"refused", status.refused},
          {"foreign", status.foreign},
          {"foreign_reasons", status.foreign_reasons},
          {"in_place", status.in_place}};
}

/// Programs whose environment is not known, as they are shown.
Json unknown_part(const std::vector<fingerprint::UnknownJobs>& unknown) {
  Json list = Json::array();
  for (const fingerprint::UnknownJobs& jobs : unknown) {
    list.push_back({{"user", jobs.user}, {"processes", jobs.processes}, {"why", jobs.why}});
  }
  return list;
}

Json facts_part(const StatusFacts& facts) {
  const host::FactsNews& news = facts.news;
  const std::time_t now = std::time(nullptr);
  return {{"from_file", !facts.settings.fingerprint.empty()},
          {"learned", config::utc(news.learned)},
          {"age_s", static_cast<uint64_t>(std::max<std::time_t>(now - news.learned, 0))},
          {"probes", news.probes},
          {"changes", news.changes},
          {"changed", config::utc(news.changed)},
          {"last_change", news.last_change},
          {"kept", news.kept},
          {"problem", news.problem},
          {"writers", to_string(facts.settings.writers.value_or(config::WritersPolicy::kMatching))},
          {"trust", to_string(facts.settings.trust.value_or(fingerprint::TrustPolicy::kAll))},
          {"environment", facts.settings.environment}};
}

Json takeover_part(const SupervisionNews& news) {
  return {{"supervisor", news.supervisor},
          {"restarts", news.restarts},
          {"last_end", news.last_end},
          {"last_crash", config::utc(news.last_crash)},
          {"upgrades", news.upgrades},
          {"upgrades_failed", news.upgrades_failed},
          {"upgrades_taken_back", news.upgrades_taken_back},
          {"safe_mode", news.safe_mode},
          {"slots", news.slots}};
}

uint64_t counted(const StatusFacts& facts, const char* name) {
  const auto counters = facts.layers.counters.snapshot();
  const auto found = counters.find(name);
  return found == counters.end() ? 0 : found->second;
}

/// Empty while the disk has given what was written to it, as far as anybody has found out.
std::string damage_warning(const StatusFacts& facts) {
  const store::StoreUsage& usage = facts.store.usage;
  if (usage.damaged == 0) return {};
  return "the disk gave other bytes than were written to it, " + std::to_string(usage.damaged) + " times, the last " +
         config::utc(usage.damaged_at) + ": " + facts.settings.store +
         ": what was found is not shown any more; it comes from the cluster or is compiled again. Look at the disk "
         "(dmesg, smartctl -a), and for the rest unmount and run inductorfs check --repair, which ends this warning; "
         "or "
         "mount with another --store";
}

/// Empty while the server takes what is published, and while it is away: that is no refusal.
std::string refusal_warning(const StatusFacts& facts) {
  const remote::WriteCondition::Refusal refusal = facts.layers.writes->refusal();
  if (refusal.why.empty() || !facts.layers.remote.operators->health().reachable) return {};
  if (!why_nothing_is_published(facts.settings).empty()) return {};
  return "the server has refused what this mount publishes since " + config::utc(refusal.since) + ": " + refusal.why +
         "; what jobs write waits on this host and is published when the server takes it";
}

void add_refused_users(const vfs::FileSystemStatus& files, Json& warnings) {
  constexpr size_t kShown = 4;
  for (size_t i = 0; i < std::min(files.users.size(), kShown) && files.users[i].refused > 0; ++i) {
    const vfs::UserHolding& one = files.users[i];
    const auto of = [](uint64_t limit, const std::string& text) { return limit == 0 ? "" : " of " + text; };
    warnings.push_back("uid " + std::to_string(one.user) + " was at a limit " + std::to_string(one.refused) +
                       " times, where programs get \"Disk quota exceeded\"; it has " + config::human_bytes(one.bytes) +
                       of(files.user_bytes, config::human_bytes(files.user_bytes)) + " and " +
                       std::to_string(one.files) + " files" + of(files.user_files, std::to_string(files.user_files)) +
                       ": have that user remove files that are not shared (inductorfs explain FILE), or raise "
                       "--user-bytes or --user-files");
  }
}

void add_unread_scopes(const StatusFacts& facts, Json& warnings) {
  constexpr size_t kDigits = 16;
  constexpr size_t kShown = 4;
  for (const auto& [scope, why] : facts.store.catalog.unread) {
    if (warnings.size() >= kShown) return;
    warnings.push_back("scope " + scope.substr(0, kDigits) + " cannot be read, so jobs compile what others have " +
                       "published there since: " + why);
  }
}

void add_supervision(const StatusFacts& facts, Json& warnings) {
  if (facts.supervision.supervisor == 0) {
    warnings.push_back("the supervisor is gone: a crash would end the mount; unmount it and mount again");
  }
  if (facts.supervision.safe_mode) {
    warnings.push_back("safe mode after crashes (the last: " + facts.supervision.last_end +
                       "): the remote is off; leave it with inductorfs upgrade");
  }
  if (facts.supervision.log_full) {
    warnings.push_back(
        "the kernel has more files of this mount in its cache than the memory for the next worker holds, so a crash "
        "would "
        "lose open files; run `echo 2 > /proc/sys/vm/drop_caches` as root");
  }
}

void add_of_host(const StatusFacts& facts, Json& warnings) {
  const std::shared_ptr<const host::HostState> host = facts.layers.host->state();
  if (const std::string warning = sharing_warning(facts.settings, host->facts); !warning.empty()) {
    warnings.push_back(warning);
  }
  const uint64_t writes = counted(facts, "writers.other_namespace");
  if (std::string warning = namespace_warning(facts.settings, writes); !warning.empty()) {
    warnings.push_back(std::move(warning));
  }
  for (std::string& warning : facts.layers.host->lacking()) warnings.push_back(std::move(warning));
  for (const std::string& kept : facts.news.kept) {
    warnings.push_back("the last probe did not learn a fact, so its earlier value counts until " +
                       std::to_string(host::HostWatch::kConfirmations) + " probes in a row have failed: " + kept);
  }
  for (const fingerprint::Facet facet : fingerprint::kAllFacets) {
    const fingerprint::Fact& fact = host->facts.get(facet);
    if (fact.known && !fact.problem.empty()) {
      warnings.push_back(std::string(fingerprint::to_string(facet)) + ": " + fact.problem);
    }
  }
}

Json warnings_of(const StatusFacts& facts, const vfs::FileSystemStatus& files) {
  Json warnings = Json::array();
  for (const std::string& warning : {filter_warning(), worker_filter_warning(), worker_places_warning(),
                                     facts.settings.no_worker_user, worker_tree_warning(facts.settings)}) {
    if (!warning.empty()) warnings.push_back(warning);
  }
  add_unread_scopes(facts, warnings);
  add_refused_users(files, warnings);
  if (std::string refusal = refusal_warning(facts); !refusal.empty()) warnings.push_back(std::move(refusal));
  if (!facts.store.silence.empty()) warnings.push_back("the numbers shown are old: " + facts.store.silence);
  for (const std::string& trouble : facts.store.troubles) warnings.push_back(trouble);
  if (const std::string why = config::text_at(facts.cluster, "why"); !why.empty()) {
    warnings.push_back(why +
                       ": no mount shows what the cluster has, and none publishes; when the reason is gone, run "
                       "inductorfs freeze --lift");
  }
  if (const std::string why = config::text_at(facts.cluster, "orders_not_read"); !why.empty()) {
    const bool refuses_all = why == facts.layers.writes->refusal().why;  // as a server does that wants a password now
    warnings.push_back("this mount cannot hear inductorfs freeze and purge, because the server refuses " +
                       (refuses_all ? "every command" : "the keys {nodes}: " + why));
  }
  add_supervision(facts, warnings);
  if (std::string warning = damage_warning(facts); !warning.empty()) warnings.push_back(std::move(warning));
  for (const StuckThread& stuck : facts.supervision.stuck) {
    warnings.push_back(stuck.to_string() +
                       (stuck.waits_for_disk ? "; look at the disks"
                                             : "; if it stays stuck, run inductorfs upgrade to start another worker"));
  }
  add_of_host(facts, warnings);
  if (const uint64_t count = facts.layers.ledger->unexplained(); count > 0) {
    warnings.push_back(std::to_string(count) + (count == 1 ? " miss has" : " misses have") +
                       " no reason that is known: this is a defect of inductorfs; report what inductorfs why-miss "
                       "--json says");
  }
  if (const std::string why = facts.layers.ledger->history_trouble(); !why.empty()) {
    warnings.push_back("what jobs found and missed is not kept for the next worker: " + why +
                       ": it is tried again every 30 s; free some space on the disk of --store, or mend what the "
                       "error names");
  }
  if (!facts.server.wrong.empty()) warnings.push_back("the remote cannot be used: " + facts.server.wrong);
  if (facts.server.facts) {
    for (const std::string& warning : facts.server.facts->warnings) warnings.push_back(warning);
  }
  if (!facts.left_over.empty()) warnings.push_back(facts.left_over);
  for (size_t i = 0; i < std::min(facts.also.size(), facts.settings.also.size()); ++i) {
    if (!facts.also[i].starts_with(places::kPlaceFailed)) continue;
    const std::string why = facts.also[i].substr(places::kPlaceFailed.size());
    warnings.push_back("not shown at " + facts.settings.also[i].path + ": " + why);
  }
  return warnings;
}

/// Of the mount's own environment; jobs that bring one along have other ones.
Json private_part(const config::Settings& settings, const host::Scopes& scopes) {
  Json list = Json::array();
  if (settings.writers == config::WritersPolicy::kLearned) return list;
  for (const host::PrivateFamily& family : host::private_families(scopes)) {
    list.push_back({{"family", family.family}, {"why", family.why}});
  }
  return list;
}

/// Durations by their names: observations up to each bound, the last of all, and their sum; nanoseconds.
Json histograms_part(const Counters& counters) {
  Json part = Json::object();
  for (const auto& [name, times] : counters.histograms()) {
    part[name] = {{"bounds", Histogram::kBounds}, {"cumulative", times.cumulative}, {"sum", times.sum}};
  }
  return part;
}

/// What lies in directories that are closed to the guest who asks; the lines begin with its path.
void leave_out_closed(vfs::FileSystemStatus& files, const StatusFacts& facts) {
  const bool silent = !facts.store.silence.empty();  // nobody knows what is closed
  const auto is_closed = [&](std::string_view path) {
    return silent || !facts.layers.file_system->inspection().lets_in(path, facts.guest->uid, facts.guest->groups);
  };
  for (auto* lines : {&files.refused, &files.in_place, &files.still_written}) {
    std::erase_if(*lines, [&](const std::string& line) { return is_closed(line.substr(0, line.find(": "))); });
  }
  std::erase_if(files.first_roots, [&](const auto& root) { return is_closed(root.path + "/"); });
  std::erase_if(files.users, [&](const auto& one) { return one.user != facts.guest->uid; });
}

}  // namespace

std::string status_json(const StatusFacts& facts) {
  vfs::FileSystemStatus files = facts.store.files;
  if (facts.guest != nullptr) leave_out_closed(files, facts);
  Json counters = Json::object();
  for (const auto& [name, value] : facts.layers.counters.snapshot()) counters[name] = value;
  return to_line({{"version", INDUCTORFS_VERSION},
                  {"mountpoint", facts.settings.mountpoint},
                  {"pid", ::getpid()},
                  {"store", store_part(facts)},
                  {"remote", remote_part(facts)},
                  {"catalog", catalog_part(facts.store.catalog)},
                  {"cluster", facts.cluster},
                  {"file_system", file_system_part(facts, files)},
                  {"unknown_programs", unknown_part(facts.layers.host->unknown_jobs())},
                  {"counters", counters},
                  {"histograms", histograms_part(facts.layers.counters)},
                  {"also", also_list(facts.settings.also, facts.also)},
                  {"warnings", warnings_of(facts, files)},
                  {"private_families", private_part(facts.settings, facts.layers.host->state()->scopes)},
                  {"facts", facts_part(facts)},
                  {"takeover", takeover_part(facts.supervision)}});
}

std::string where_json(const config::Settings& settings, const std::vector<std::string>& also) {
  return to_line({{"mountpoint", settings.mountpoint}, {"pid", ::getpid()}, {"also", also_list(settings.also, also)}});
}

std::string explanation_json(const vfs::Explanation& e, const Json& verdict, const std::string& frozen) {
  Json answer = {{"verdict", verdict.value("text", std::string())},
                 {"reason", verdict.value("reason", std::string())},
                 {"path", e.path},
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
                 {"publish", e.publish}};
  Json facets = Json::object();
  for (const auto& [name, lines] : layout::parse_scope_text(e.scope_text).facets) {
    facets[std::string(name)] = fingerprint::joined_lines(lines);
  }
  answer["facets"] = std::move(facets);
  answer["nearest"] = verdict.value("nearest", Json::object());
  if (!frozen.empty()) answer["frozen"] = frozen;
  return to_line(answer);
}

}  // namespace inductorfs::mount
