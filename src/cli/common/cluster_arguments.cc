// SPDX-License-Identifier: Apache-2.0
#include "cli/common/cluster_arguments.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "cli/common/answer_text.h"
#include "inductorfs/cli/run.h"
#include "inductorfs/config/json.h"
#include "inductorfs/config/text.h"
#include "inductorfs/control/control.h"
#include "inductorfs/control/requests.h"
#include "inductorfs/mount/process.h"

namespace inductorfs::cli {

using config::Json;
using config::text_at;

namespace {

/// A purge of a large cluster walks every index twice.
constexpr Milliseconds kWalkPatience{3'600'000};

std::string who_asks(const config::Environment& environment) {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  const config::User user = config::current_user(environment);
  return config::printable((user.name.empty() ? "uid " + std::to_string(user.uid) : user.name) + "@" + host.data());
}

std::string node_name(const Json& node) {
  if (text_at(node, "mountpoint").empty()) return "mount " + text_at(node, "id");
  return text_at(node, "host") + ":" + text_at(node, "mountpoint");
}

}  // namespace

void ClusterArguments::add_to(Words& words) {
  words.add_path("MOUNTPOINT", path_, "ask the daemon of this mount, which knows the server and its password");
  words.add_json(json_);
  options_.add_remote_to(words, "read the options of the server from the configuration file of a mount");
}

Result<Json> ClusterArguments::ask(mount::ClusterRequest request, const config::Environment& environment) const {
  request.by = who_asks(environment);
  if (!path_.empty()) {
    if (options_.values().contains("remote")) {
      return fail(ErrorCode::kInvalid, "--remote and MOUNTPOINT exclude each other: give one of them");
    }
    const std::string mountpoint = absolute(path_);
    INDUCTORFS_TRY_ASSIGN(const auto mount, locate_mount(mountpoint, environment));
    const Milliseconds patience =
        request.acknowledged + (request.kind == mount::ClusterRequest::Kind::kPurge ? kWalkPatience : kQueryPatience);
    const auto line = control::ask(mount.socket, config::to_line(mount::to_json(request)), Deadline::after(patience));
    if (!line) return fail(on_the_way(mountpoint, line.error()));
    INDUCTORFS_TRY_ASSIGN(const auto answer, control::parse_answer(*line));
    return config::from_text(answer);
  }
  const Result<config::Settings> given = options_.facts_settings();
  if (!given) return mount::wrong_option(given.error());
  const config::Settings& settings = *given;
  if (const auto changed = config::change_families(settings, options_.file()); !changed) {
    return mount::wrong_option(changed.error());
  }
  if (settings.remote.empty()) {
    return fail(ErrorCode::kInvalid, "no cluster is named: give --remote URL or the MOUNTPOINT of a mount");
  }
  Counters counters;
  // What the daemon would check.
  INDUCTORFS_TRY_ASSIGN(const auto checked, mount::cluster_request(mount::to_json(request)));
  INDUCTORFS_TRY_ASSIGN(const auto cluster, mount::open_cluster(settings, counters, "inductorfs-operator"));
  return mount::run_cluster_request(*cluster.index, *cluster.operators, checked, [] { return false; });
}

void add_acknowledge_timeout(Words& words, int64_t& seconds) {
  words.add("--timeout", &seconds, "wait at most S seconds until all live mounts have obeyed [15]", "S");
}

std::string obedience_text(const Json& answer) {
  const Json& nodes = config::part_of(answer, "nodes");
  if (nodes.empty()) return "no live mount is listed\n";
  const auto obeyed = std::ranges::count_if(nodes, [](const Json& node) { return config::flag_at(node, "obeyed"); });
  std::string text = std::to_string(obeyed) + " of " + std::to_string(nodes.size()) + " live mounts have obeyed\n";
  for (const Json& node : nodes) {
    const bool has = config::flag_at(node, "obeyed");
    text += (has ? "  yes  " : "  NO   ") + node_name(node);
    if (!has) text += ", last seen " + config::human_seconds(config::number_at(node, "age_s")) + " ago";
    text += "\n";
  }
  return text;
}

int obedience_code(const Json& answer) {
  const Json& nodes = config::part_of(answer, "nodes");
  size_t missing = 0;
  std::string first;
  for (const Json& node : nodes) {
    if (config::flag_at(node, "obeyed")) continue;
    if (missing++ == 0) first = node_name(node);
  }
  if (nodes.empty()) {
    return fail_with(
        {ErrorCode::kNotFound,
         "no live mount is listed, so nobody is known to have obeyed; the order stands, and a mount that a full server "
         "has forgotten obeys it: check --remote and --prefix, raise maxmemory, and see inductorfs nodes"});
  }
  if (missing == 0) return kExitDone;
  return fail_with(
      {ErrorCode::kTimedOut, std::to_string(missing) + " of " + std::to_string(nodes.size()) +
                                 " live mounts have not acknowledged in time, the first: " + first +
                                 ": the order stands, and each obeys it when it reaches the server again"});
}

}  // namespace inductorfs::cli
