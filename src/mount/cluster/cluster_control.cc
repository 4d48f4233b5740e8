// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/mount/cluster_control.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "inductorfs/base/encoding.h"
#include "inductorfs/base/log.h"
#include "inductorfs/config/json.h"
#include "inductorfs/config/text.h"
#include "inductorfs/layout/scope.h"
#include "inductorfs/mount/layers.h"
#include "inductorfs/mount/process.h"
#include "mount/cluster/heartbeat.h"
#include "mount/cluster/node_record.h"
#include "mount/cluster/orders.h"
#include "mount/cluster/remote_options.h"

namespace inductorfs::mount {

using config::Json;
using remote::Index;
using remote::Operators;
using Kind = ClusterRequest::Kind;

namespace {

constexpr Milliseconds kAskPatience{5'000};
/// A million entries take about a minute.
constexpr Milliseconds kScopePatience{600'000};
constexpr Milliseconds kExaminePatience{10'000};
constexpr Milliseconds kAcknowledgePause{500};
/// Two heartbeats with a record have not come.
constexpr Milliseconds kStaleAfter = 2 * (Heartbeat::kRecordInterval + Heartbeat::kInterval * 5 / 4);
constexpr size_t kOrderIdBytes = 8;
/// Other operators who order at the same time.
constexpr int kOrderAttempts = 10;
constexpr int64_t kNanosecondsPerMillisecond = 1'000'000;
constexpr std::array<std::pair<Kind, const char*>, 4> kKinds{
    {{Kind::kNodes, "nodes"}, {Kind::kFreeze, "freeze"}, {Kind::kLift, "lift"}, {Kind::kPurge, "purge"}}};

Deadline soon() { return Deadline::after(kAskPatience); }

std::string random_id() {
  std::array<char, kOrderIdBytes> bytes{};
  // It waits only in the first moments of a host.
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) return {};
  return to_hex(std::string_view(bytes.data(), bytes.size()));
}

void sort(Json& nodes) {
  std::stable_sort(nodes.begin(), nodes.end(), [](const Json& a, const Json& b) {
    return std::pair(config::text_at(a, "host"), config::text_at(a, "mountpoint")) <
           std::pair(config::text_at(b, "host"), config::text_at(b, "mountpoint"));
  });
}

/// Each record as its mount has written it, with its age. A record that is no JSON object is shown by its id alone.
Result<Json> nodes_of(Operators& cluster) {
  INDUCTORFS_TRY_ASSIGN(auto records, cluster.list_nodes(remote::kNodesLimit, soon()));
  Json nodes = Json::array();
  for (const remote::NodeRecord& record : records) {
    const Json told = parse_node_record(record.text);
    Json node = Json::object({{"id", record.id},
                              {"age_s", static_cast<uint64_t>(record.age.count() / 1000)},
                              {"is_stale", record.age > kStaleAfter}});
    if (told.is_object()) {
      for (const auto& [name, value] : told.items()) {
        if (!node.contains(name)) node[name] = value;
      }
    } else {
      node["unreadable"] = true;
    }
    nodes.push_back(std::move(node));
  }
  sort(nodes);
  return nodes;
}

/// The mounts that were there and have ended without saying so, and those that seem to: `is_gone` tells them apart.
Result<Json> missing_of(Operators& cluster, const Json& nodes) {
  INDUCTORFS_TRY_ASSIGN(const auto found, cluster.list_missing_nodes(remote::kNodeLifetime, soon()));
  std::set<std::pair<std::string, std::string>> there;
  const auto place = [](const Json& node) {
    return std::pair(config::text_at(node, "host"), config::text_at(node, "mountpoint"));
  };
  for (const Json& node : nodes) there.insert(place(node));
  Json missing = Json::array();
  for (const remote::MissingNode& one : found) {
    Json node = parse_node_name(one.name);
    if (!node.is_object() || there.contains(place(node))) continue;
    node["age_s"] = static_cast<uint64_t>(one.age.count() / 1000);
    node["is_gone"] = one.age >= remote::kMissingAfter;
    missing.push_back(std::move(node));
  }
  sort(missing);
  return missing;
}

using HasObeyed = std::function<bool(const Json& node)>;
/// The nodes, each with `obeyed`, when all have, or time is over. The order stands: that they could not be listed once
/// is no reason to leave the rest undone. A server that is full forgets records: whoever was listed once is waited for,
/// and where nobody was at first, the first to write its record again, because it obeys, may not be the only one.
Json await(Operators& cluster, Milliseconds patience, const HasObeyed& has_obeyed,
           const std::function<bool()>& cancelled) {
  const Deadline deadline = Deadline::after(patience);
  std::map<std::string, Json> awaited;  // by id
  std::optional<bool> forgotten;
  while (true) {
    auto listed = nodes_of(cluster);
    if (listed && !forgotten) forgotten = listed->empty();
    bool all = listed.has_value() && !forgotten.value_or(true);
    for (const Json& node : listed.value_or(Json::array())) awaited[config::text_at(node, "id")] = node;
    Json nodes = Json::array();
    for (auto& [id, node] : awaited) {
      const bool obeyed = has_obeyed(node);
      node["obeyed"] = obeyed;
      all = all && obeyed;
      nodes.push_back(node);
    }
    sort(nodes);
    if (all || deadline.passed() || cancelled()) return nodes;
    std::this_thread::sleep_for(kAcknowledgePause);
  }
}

/// The largest number under this name that a mount tells: a server may have lost the orders that the mounts still hold.
int64_t largest_heard(Operators& cluster, const char* name) {
  uint64_t largest = 0;
  for (const Json& node : nodes_of(cluster).value_or(Json::array())) {
    largest = std::max(largest, config::number_at(node, name));
  }
  return static_cast<int64_t>(std::min<uint64_t>(largest, INT64_MAX / 2));
}

using Change = std::function<void(Orders&, int64_t server_time)>;
Result<void> change_orders(Operators& cluster, const Change& change) {
  for (int attempt = 0; attempt < kOrderAttempts; ++attempt) {
    INDUCTORFS_TRY_ASSIGN(const auto now, cluster.read_orders(soon()));
    Orders orders = parse_orders(now.text).value_or(Orders{});
    change(orders, now.server_time);
    INDUCTORFS_TRY_ASSIGN(const bool replaced, cluster.replace_orders(now.text, encode_orders(orders), soon()));
    if (replaced) return {};
  }
  return fail(ErrorCode::kBusy, "others change the cluster's orders at the same time; try again");
}

Result<Json> freeze(Operators& cluster, const ClusterRequest& request, const std::function<bool()>& cancelled) {
  FreezeOrder order;
  order.id = random_id();
  order.frozen = request.kind == Kind::kFreeze;
  order.why = request.why;
  order.by = request.by;
  const int64_t heard = largest_heard(cluster, "freeze_at");
  INDUCTORFS_TRY(change_orders(cluster, [&](Orders& orders, int64_t server_time) {
    order.at = next_number(server_time, std::max(orders.freeze.at, heard));
    orders.freeze = order;
  }));
  const auto obeyed = [&](const Json& node) {
    return config::text_at(node, "freeze") == order.id && config::flag_at(node, "frozen") == order.frozen;
  };
  Json nodes = await(cluster, request.acknowledged, obeyed, cancelled);
  return Json::object({{"frozen", order.frozen}, {"order", order.id}, {"nodes", std::move(nodes)}});
}

/// The scopes that are to be walked. With a version of torch the selection is narrowed to them.
Result<std::vector<remote::ScopeId>> scopes_of(Index& index, const ClusterRequest& request,
                                               layout::Selection& selection) {
  INDUCTORFS_TRY_ASSIGN(const auto announced, index.list_scopes(remote::kAnnouncedScopesLimit, soon()));
  std::set<remote::ScopeId> found;
  for (const remote::ScopeInformation& scope : announced) {
    const bool is_meant = request.torch.empty() || layout::is_of_torch(scope.text, request.torch);
    if (is_meant && selection.fits_scope(scope.id)) found.insert(scope.id);
  }
  for (const std::string& scope : request.torch.empty() ? selection.scopes : std::vector<std::string>()) {
    const bool is_beginning = scope.size() < 2 * codec::Digest::kSize;
    if (is_beginning && std::ranges::none_of(found, [&](const auto& id) { return id.starts_with(scope); })) {
      return fail(ErrorCode::kInvalid, "--scope " + scope + ": the cluster has announced no such scope: " +
                                           "inductorfs explain shows the scope of a path");
    }
  }
  // A scope that is named in full need not be announced any more.
  for (const std::string& scope : selection.scopes) {
    if (scope.size() == 2 * codec::Digest::kSize && request.torch.empty()) found.insert(scope);
  }
  if (!request.torch.empty()) {
    if (found.empty()) {
      return fail(ErrorCode::kInvalid, "no announced scope has torch " + request.torch +
                                           ": inductorfs fingerprint shows the version of a host's torch");
    }
    constexpr size_t kDigits = 16;
    selection.scopes.clear();
    for (const auto& id : found) selection.scopes.push_back(id.substr(0, kDigits));
    INDUCTORFS_TRY(check_selection(selection));
  }
  return std::vector<remote::ScopeId>(found.begin(), found.end());
}

/// Adds what one pass over all scopes found to `total`; what it looked at only where it `counts`.
Result<void> purge_entries(Operators& cluster, const std::vector<remote::ScopeId>& scopes,
                           const layout::Selection& selection, bool dry_run, bool counts, remote::PurgeReport& total) {
  for (const remote::ScopeId& scope : scopes) {
    const auto selects = [&](const codec::Entry& entry) { return selection.selects(scope, entry); };
    INDUCTORFS_TRY_ASSIGN(auto report, cluster.purge(scope, selects, dry_run, Deadline::after(kScopePatience)));
    if (counts) total.looked_at += report.looked_at;
    if (counts) total.unknown += report.unknown;
    total.selected += report.selected;
    total.bytes += report.bytes;
    total.removed += report.removed;
    for (std::string& path : report.paths) {
      if (total.paths.size() < remote::kPurgePaths) total.paths.push_back(std::move(path));
    }
  }
  // With another condition other entries may need the bytes.
  const bool is_alone = selection == layout::Selection{.digest = selection.digest};
  if (!dry_run && selection.digest && is_alone) INDUCTORFS_TRY(cluster.remove_blob(*selection.digest, soon()));
  return {};
}

Json found_json(const std::vector<remote::ScopeId>& scopes, const remote::PurgeReport& report) {
  return Json::object({{"scopes", scopes.size()},
                       {"looked_at", report.looked_at},
                       {"unknown", report.unknown},
                       {"selected", report.selected},
                       {"bytes", report.bytes},
                       {"removed", report.removed},
                       {"paths", report.paths}});
}

/// What earlier tries have removed stays counted.
void begin_anew(remote::PurgeReport& report, bool dry_run) {
  if (dry_run) report = {};
  report.looked_at = report.selected = report.removed;
  report.unknown = 0;
}

/// First what is there; then the order to all mounts, so that they have heard of it in the log; when they have obeyed,
/// what they published meanwhile. All of it is added to `report`.
Result<Json> purge(Index& index, Operators& cluster, const ClusterRequest& request,
                   const std::function<bool()>& cancelled, remote::PurgeReport& report) {
  layout::Selection selection = request.selection;
  INDUCTORFS_TRY_ASSIGN(const auto now, cluster.read_orders(soon()));
  if (request.older_than) {
    const int64_t age = std::chrono::duration_cast<Milliseconds>(*request.older_than).count();
    selection.before_ns = std::max<int64_t>(now.server_time - age, 0) * kNanosecondsPerMillisecond;
  }
  INDUCTORFS_TRY_ASSIGN(const auto scopes, scopes_of(index, request, selection));
  begin_anew(report, request.dry_run);
  const uint64_t removed_before = report.removed;
  const Result<void> first = purge_entries(cluster, scopes, selection, request.dry_run, true, report);
  if (request.dry_run && !first) return fail(first.error());
  if (request.dry_run) {
    Json answer = found_json(scopes, report);
    answer["dry_run"] = true;
    return answer;
  }
  int64_t order = 0;
  const int64_t heard = largest_heard(cluster, "purged");
  INDUCTORFS_TRY(change_orders(cluster, [&](Orders& orders, int64_t server_time) {
    const int64_t last = orders.purges.empty() ? orders.dropped : orders.purges.back().id;
    order = next_number(server_time, std::max(last, heard));
    orders.purges.push_back({order, selection});
  }));
  const auto obeyed = [&](const Json& node) {
    return config::number_at(node, "purged") >= static_cast<uint64_t>(order);
  };
  Json nodes = await(cluster, request.acknowledged, obeyed, cancelled);
  if (!first) report.looked_at = removed_before;
  if (!first) report.unknown = 0;
  INDUCTORFS_TRY(purge_entries(cluster, scopes, selection, false, !first, report));
  Json answer = found_json(scopes, report);
  answer["dry_run"] = false;
  answer["order"] = order;
  answer["nodes"] = std::move(nodes);
  return answer;
}

/// What a server has done whose place another one has taken counts for nothing: then all begins anew. What a purge
/// has removed there is told all the same.
Result<Json> at_one_server(Index& index, Operators& cluster, const ClusterRequest& request,
                           const std::function<bool()>& cancelled) {
  constexpr int kAttempts = 3;
  remote::PurgeReport removed;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const uint64_t before = index.server_changes();
    auto done = request.kind == Kind::kPurge ? purge(index, cluster, request, cancelled, removed)
                                             : freeze(cluster, request, cancelled);
    if (done && attempt > 0) (*done)["began_anew"] = attempt;
    if (done || !cancelled()) INDUCTORFS_TRY(index.confirm_server(soon()));
    if (index.server_changes() == before || cancelled()) return done;
  }
  return fail(ErrorCode::kUnavailable,
              "the Sentinels have named another master each time, so it is not known what the cluster has kept: try "
              "again when they agree (SENTINEL MASTERS)");
}

}  // namespace

Json to_json(const ClusterRequest& request) {
  Json json = Json::object({{"by", request.by}, {"why", request.why}});
  for (const auto& [kind, name] : kKinds) {
    if (kind == request.kind) json["op"] = name;
  }
  json["selection"] = to_json(request.selection);
  json["torch"] = request.torch;
  if (request.older_than) json["older_than_s"] = static_cast<uint64_t>(request.older_than->count());
  json["dry_run"] = request.dry_run;
  json["timeout_ms"] = static_cast<uint64_t>(request.acknowledged.count());
  return json;
}

Result<ClusterRequest> cluster_request(const Json& json) {
  constexpr size_t kTextLimit = ClusterRequest::kTextLimit;
  constexpr uint64_t kMostAge = 100ULL * 365 * 24 * 3600;
  constexpr uint64_t kMostWait = 24ULL * 3600 * 1000;
  ClusterRequest request;
  const std::string op = config::text_at(json, "op");
  const auto kind = std::ranges::find_if(kKinds, [&](const auto& one) { return one.second == op; });
  if (kind == kKinds.end()) return fail(ErrorCode::kNotSupported, "no request to the cluster: " + op);
  request.kind = kind->first;
  request.by = config::text_at(json, "by").substr(0, kTextLimit);
  request.why = config::text_at(json, "why").substr(0, kTextLimit);
  request.torch = config::text_at(json, "torch").substr(0, kTextLimit);
  if (request.kind == Kind::kPurge && (!json.contains("selection") || !json.contains("dry_run"))) {
    return fail(ErrorCode::kInvalid, "a purge needs a selection, and whether it is a dry run");
  }
  auto selection = selection_from(config::part_of(json, "selection"));
  if (!selection) return fail(ErrorCode::kInvalid, "the selection cannot be read");
  request.selection = std::move(*selection);
  INDUCTORFS_TRY(check_selection(request.selection));
  if (json.contains("older_than_s")) {
    request.older_than = std::chrono::seconds(std::min(config::number_at(json, "older_than_s"), kMostAge));
  }
  request.dry_run = config::flag_at(json, "dry_run");
  request.acknowledged = Milliseconds(std::min(config::number_at(json, "timeout_ms"), kMostWait));
  return request;
}

Json server_part(const remote::ServerFacts& facts) {
  if (facts.version.empty()) return Json::object();
  return Json::object({{"version", facts.version},
                       {"eviction_policy", facts.eviction_policy},
                       {"memory_used", facts.memory_used},
                       {"memory_limit", facts.memory_limit},
                       {"evicted_keys", facts.evicted}});
}

Result<Json> run_cluster_request(Index& index, Operators& cluster, const ClusterRequest& request,
                                 const std::function<bool()>& cancelled) {
  if (request.kind != Kind::kNodes) return at_one_server(index, cluster, request, cancelled);
  INDUCTORFS_TRY_ASSIGN(auto nodes, nodes_of(cluster));
  const auto server = cluster.probe(soon());
  Json part = server ? server_part(*server) : Json::object({{"error", server.error().to_string()}});
  if (part.empty()) part["error"] = "this user of the server may not ask it: see INFO in its ACL";
  Json answer = Json::object({{"nodes", std::move(nodes)}, {"server", std::move(part)}});
  if (auto missing = missing_of(cluster, answer["nodes"])) answer["missing"] = std::move(*missing);
  return answer;
}

Result<std::vector<remote::ServerExamination>> examine_servers(const config::Settings& settings) {
  const remote::RemoteOptions options = remote_options(settings, "inductorfs-doctor");
  auto found = remote::examine_servers(options, Deadline::after(kExaminePatience));
  if (!found) return fail(std::move(found).error().with_context(log::redact_url(settings.remote)));
  return found;
}

Result<remote::Remote> open_cluster(const config::Settings& settings, Counters& counters, const std::string& client) {
  remote::RemoteOptions options = remote_options(settings, client);
  options.without_progress = kAskPatience;  // nobody's lookup waits for it
  const std::string shown = "remote " + log::redact_url(settings.remote);
  auto opened = remote::open_redis(options, counters);
  if (!opened) return wrong_option(std::move(opened).error().with_context(shown));
  auto facts = opened->operators->probe(soon());
  if (facts) return opened;
  const bool is_wrong = is_wrong_server(facts.error());
  Error why = std::move(facts).error().with_context(shown);
  return is_wrong ? wrong_option(why) : fail(std::move(why));
}

}  // namespace inductorfs::mount
