// SPDX-License-Identifier: Apache-2.0
// What `doctor --remote URL` finds about a server.

#include "cli/doctor/doctor_findings.h"
#include "inductorfs/base/number.h"
#include "inductorfs/config/paths.h"
#include "inductorfs/config/text.h"
#include "inductorfs/mount/cluster_control.h"

namespace inductorfs::cli {
namespace {

using Kind = Diagnosis::Kind;
using remote::ServerExamination;

constexpr uint64_t kOldestMajor = 7;  // redis_probe.cc refuses an older one
constexpr uint64_t kNearlyFull = 90;  // per cent
constexpr uint64_t kManyClients = 80;
constexpr std::chrono::seconds kClocksDiffer{5};
/// A first lookup needs two round trips or three, and gives up after --lookup-patience (250 ms).
constexpr std::chrono::milliseconds kSlow{20};
constexpr std::chrono::milliseconds kTooSlow{80};

std::string field(const ServerExamination& server, std::string_view name) {
  const auto found = server.info.find(name);
  return found == server.info.end() ? std::string() : config::printable(found->second);
}

uint64_t number(const ServerExamination& server, std::string_view name) {
  return leading_number<uint64_t>(field(server, name));
}

uint64_t share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<uint64_t>(100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

void add_kind(const ServerExamination& server, std::vector<Diagnosis>& findings) {
  const std::string version = field(server, "redis_version");
  if (version.empty()) {
    findings.push_back(
        {Kind::kBad, server.address + " is no Redis server: INFO has no redis_version", "check host and port"});
  } else if (number(server, "redis_version") < kOldestMajor) {
    findings.push_back({Kind::kBad, server.address + " is Redis " + version, "install Redis 7.0 or later"});
  } else {
    findings.push_back({Kind::kGood, server.address + " is Redis " + version, {}});
  }
  if (field(server, "redis_mode") == "cluster" && !server.of_cluster) {
    findings.push_back({Kind::kBad, server.address + " is part of a Redis Cluster, and no server of it has all keys",
                        "name the cluster: redis+cluster://HOST:PORT, or rediss+cluster:// for TLS"});
  }
  if (field(server, "role") == "slave") {
    findings.push_back({Kind::kBad, server.address + " is a replica: nothing can be published there",
                        "name the master, " + field(server, "master_host") + ":" + field(server, "master_port") +
                            ", or use redis+sentinel://"});
  }
}

void add_memory(const ServerExamination& server, std::vector<Diagnosis>& findings) {
  const uint64_t most = number(server, "maxmemory");
  const std::string policy = field(server, "maxmemory_policy");
  if (most == 0) {
    findings.push_back({Kind::kWarning,
                        server.address + " has no maxmemory: it grows until its host has no memory left",
                        "CONFIG SET maxmemory 16gb, or what its host can spare, and maxmemory-policy volatile-ttl"});
    return;
  }
  if (policy.starts_with("allkeys-")) {
    findings.push_back({Kind::kWarning,
                        server.address + " has maxmemory-policy " + policy + ", which may evict the index of a scope",
                        "CONFIG SET maxmemory-policy volatile-ttl"});
  } else if (policy == "noeviction") {
    findings.push_back({Kind::kWarning,
                        server.address + " has maxmemory-policy noeviction: publishing fails when its memory is full",
                        "CONFIG SET maxmemory-policy volatile-ttl"});
  }
  const uint64_t memory = number(server, "used_memory");
  const uint64_t used = share(memory, most);
  const std::string uses =
      server.address + " uses " + std::to_string(used) + " % of its maxmemory of " + config::human_bytes(most);
  // Redis evicts before each command: what is more than maxmemory then cannot be evicted.
  if (memory > most + number(server, "mem_not_counted_for_evict")) {
    const bool evicts = policy == "volatile-ttl";
    findings.push_back({Kind::kBad, uses + (evicts ? ", has nothing left to evict," : "") + " and refuses every write",
                        std::string("CONFIG SET maxmemory 16gb, or what its host can spare") +
                            (evicts ? "" : ", and maxmemory-policy volatile-ttl")});
  } else if (used >= kNearlyFull) {
    findings.push_back({Kind::kWarning, uses,
                        "raise maxmemory if entries are evicted that jobs still use (evicted_keys in INFO stats)"});
  }
}

void add_persistence(const ServerExamination& server, std::vector<Diagnosis>& findings) {
  const bool failed =
      field(server, "aof_last_write_status") == "err" || field(server, "rdb_last_bgsave_status") == "err";
  if (failed) {
    findings.push_back({Kind::kBad, server.address + " cannot save to its disk, and may refuse every write",
                        "see its log and the free space of its disk, then run BGSAVE"});
  } else if (field(server, "aof_enabled") == "0") {
    findings.push_back({Kind::kNote,
                        server.address + " keeps no append-only file: what was published since its last snapshot is "
                                         "gone after a restart, and is compiled again",
                        "CONFIG SET appendonly yes, if a restart of the server must cost nothing"});
  }
}

void add_connection(const ServerExamination& server, std::vector<Diagnosis>& findings) {
  const uint64_t clients = number(server, "connected_clients");
  const uint64_t most = number(server, "maxclients");
  if (share(clients, most) >= kManyClients) {
    findings.push_back(
        {Kind::kWarning,
         server.address + " has " + std::to_string(clients) + " of at most " + std::to_string(most) + " connections",
         "raise maxclients: a mount has up to 13 connections while jobs start"});
  }
  const double trip = static_cast<double>(server.round_trip.count()) / 1000;
  const std::string took = server.address + " answers after " + std::to_string(trip).substr(0, 5) + " ms";
  if (server.round_trip >= kTooSlow) {
    findings.push_back({Kind::kBad, took + ", so a first lookup often gives up before its answer comes",
                        "use a server nearby, or mount with --lookup-patience 2000"});
  } else if (server.round_trip >= kSlow) {
    findings.push_back({Kind::kWarning, took + ", which each first lookup waits for two times or three",
                        "use a server nearby, or mount with --lookup-patience 1000"});
  } else {
    findings.push_back({Kind::kGood, took, {}});
  }
  if (server.clock_ahead && std::chrono::abs(*server.clock_ahead) >= kClocksDiffer) {
    const std::chrono::seconds ahead = *server.clock_ahead;
    findings.push_back({Kind::kWarning,
                        "the clock of " + server.address + " is " + std::to_string(std::chrono::abs(ahead).count()) +
                            (ahead.count() > 0 ? " s ahead of" : " s behind") + " this host's",
                        "set both by NTP (timedatectl set-ntp true): times of files and logs do not fit together"});
  }
}

void add_secrecy(const ServerExamination& server, std::vector<Diagnosis>& findings) {
  if (server.administers) {
    findings.push_back({server.local ? Kind::kNote : Kind::kWarning,
                        server.address + " lets this user administer it: whoever has its password can empty it, or "
                                         "read and change what others keep there",
                        "make a user with the rights that inductorfs acl publisher prints, and name it in --remote"});
  }
  if (server.local) return;
  if (!server.tls) {
    findings.push_back({Kind::kWarning,
                        server.address + " is reached without TLS: whoever is on the way can read the password, and "
                                         "change the code that jobs run",
                        "use rediss:// (--ca-file), or a network that nobody else is in"});
  }
  if (!server.has_password) {
    findings.push_back({Kind::kWarning,
                        server.address + " wants no password: whoever reaches it can change the code that jobs run",
                        "CONFIG SET requirepass, and mount with --password-file"});
  }
}

}  // namespace

std::vector<Diagnosis> findings_of_server(const ServerExamination& server) {
  if (!server.unreachable.empty()) {
    return {{Kind::kBad,
             server.address + ", a master of the Redis Cluster, does not answer: " + server.unreachable +
                 ": what it holds is misses",
             "start it, or have its replica promoted (CLUSTER FAILOVER)"}};
  }
  std::vector<Diagnosis> findings;
  if (server.info.empty()) {
    findings.push_back({Kind::kWarning, server.address + " does not tell this user about itself (INFO)",
                        "ACL SETUSER with +info, or mount with --read-only"});
  } else {
    add_kind(server, findings);
    add_memory(server, findings);
    add_persistence(server, findings);
  }
  add_connection(server, findings);
  add_secrecy(server, findings);
  return findings;
}

Diagnosis finding_of_no_server(const std::string& error) {
  return {Kind::kBad, "the remote cannot be used: " + error,
          "mend what the line says; check host, port, password and firewall from this host"};
}

}  // namespace inductorfs::cli
