// SPDX-License-Identifier: Apache-2.0
#include "support/redis_cluster.h"

#include <poll.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <sstream>
#include <stdexcept>

#include "support/patience.h"

namespace inductorfs::testing {
namespace {

constexpr Milliseconds kPatience{60'000 * kSlowness};
constexpr int kPause = 20;
constexpr int kSlots = 16384;

redis::Patience generous() { return {kPatience, kPatience}; }

}  // namespace

RedisCluster::RedisCluster(Options options) : options_(std::move(options)) {
  start_nodes();
  for (size_t i = 0; i < size(); ++i) ids_.push_back(at(i, {"CLUSTER", "MYID"}).text);
  join();
}

std::string RedisCluster::url() const {
  std::string all;
  for (const uint16_t port : ports_) all += (all.empty() ? "" : ",") + std::string("127.0.0.1:") + std::to_string(port);
  const std::string who = options_.password.empty() ? "" : ":" + options_.password + "@";
  return (options_.tls ? "rediss+cluster://" : "redis+cluster://") + who + all;
}

void RedisCluster::start_nodes() {
  for (size_t i = 0; i < options_.masters + options_.replicas; ++i) {
    RedisServer::Options one;
    one.password = options_.password;
    one.tls = options_.tls;
    one.tls_authority = authority_.path();
    ports_.push_back(options_.tls ? 0 : free_port());
    one.arguments = {"--bind",
                     "127.0.0.1",
                     "--cluster-enabled",
                     "yes",
                     "--cluster-port",
                     std::to_string(free_port()),
                     "--cluster-node-timeout",
                     std::to_string(options_.node_timeout_milliseconds),
                     "--cluster-require-full-coverage",
                     "no",
                     "--cluster-allow-replica-migration",
                     "no",
                     "--cluster-replica-validity-factor",
                     "0",
                     "--repl-diskless-sync-delay",
                     "0",
                     "--appendonly",
                     "no",
                     "--protected-mode",
                     "no"};
    if (!options_.tls) one.arguments.insert(one.arguments.end(), {"--port", std::to_string(ports_[i])});
    if (options_.tls) one.arguments.insert(one.arguments.end(), {"--tls-replication", "yes", "--tls-cluster", "yes"});
    if (!one.password.empty()) one.arguments.insert(one.arguments.end(), {"--masterauth", one.password});
    nodes_.push_back(std::make_unique<RedisServer>(std::move(one)));
    if (options_.tls) ports_[i] = nodes_[i]->tls_port();
  }
}

void RedisCluster::join() {
  const size_t masters = options_.masters;
  for (size_t i = 0; i < masters; ++i) {
    const std::string first = std::to_string(kSlots * i / masters);
    const std::string last = std::to_string(kSlots * (i + 1) / masters - 1);
    at(i, {"CLUSTER", "ADDSLOTSRANGE", first, last});
    at(i, {"CLUSTER", "SET-CONFIG-EPOCH", std::to_string(i + 1)});
  }
  const std::string port = std::to_string(ports_[0]);
  const std::string bus = at(0, {"CONFIG", "GET", "cluster-port"}).items.at(1).text;
  for (size_t i = 1; i < size(); ++i) at(i, {"CLUSTER", "MEET", "127.0.0.1", port, bus});
  const auto count = [&](size_t node, const std::string& field) {
    const std::string text = at(node, {"CLUSTER", "INFO"}).text;
    return std::stoul(text.substr(text.find(field + ":") + field.size() + 1));
  };
  wait("all nodes to know each other", [&] {
    for (size_t i = 0; i < size(); ++i) {
      if (count(i, "cluster_known_nodes") != size() || count(i, "cluster_slots_assigned") != kSlots) return false;
    }
    return true;
  });
  for (size_t i = masters; i < size(); ++i) at(i, {"CLUSTER", "REPLICATE", ids_[i - masters]});
  wait_until_whole();
}

void RedisCluster::wait_until_whole() {
  wait("the cluster to be whole", [&] {
    for (size_t i = 0; i < size(); ++i) {
      if (at(i, {"CLUSTER", "INFO"}).text.find("cluster_state:ok") == std::string::npos) return false;
      if (at(i, {"CLUSTER", "NODES"}).text.find("fail") != std::string::npos) return false;
      const std::string role = at(i, {"INFO", "replication"}).text;
      const bool is_replica = role.find("role:slave") != std::string::npos;
      if (is_replica && role.find("master_link_status:up") == std::string::npos) return false;
    }
    return true;
  });
}

redis::Reply RedisCluster::at(size_t node, const redis::Command& command, bool may_fail) {
  auto endpoint = redis::parse_url(nodes_[node]->url());
  auto connection = redis::Connection::open(*endpoint, Deadline::after(kPatience));
  if (!connection) throw std::runtime_error("node " + std::to_string(node) + ": " + connection.error().to_string());
  auto reply = (*connection)->call(command, generous());
  if (!reply) throw std::runtime_error("node " + std::to_string(node) + ": " + reply.error().to_string());
  if (reply->is_error() && !may_fail) throw std::runtime_error(std::string(command[0]) + ": " + reply->text);
  return std::move(*reply);
}

bool RedisCluster::agree() {
  std::set<std::map<std::string, std::string>> views;
  for (size_t i = 0; i < size(); ++i) {
    if (!nodes_[i]->running()) continue;
    std::map<std::string, std::string> view;  // what a node says of each: its epoch, whether it is there, its slots
    std::istringstream lines(at(i, {"CLUSTER", "NODES"}).text);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::vector<std::string> all{std::istream_iterator<std::string>(words), {}};
      std::string& said = view[all.at(0)];
      for (size_t word = 6; word < all.size(); ++word) said += all[word] + " ";
    }
    views.insert(std::move(view));
  }
  return views.size() == 1;
}

std::map<size_t, size_t> RedisCluster::votes_for(uint16_t slot) {
  std::map<size_t, size_t> votes;
  for (size_t i = 0; i < size(); ++i) {
    if (!nodes_[i]->running()) continue;
    for (const redis::Reply& range : at(i, {"CLUSTER", "SLOTS"}).items) {
      if (slot < range.items[0].integer || slot > range.items[1].integer) continue;
      for (size_t node = 0; node < size(); ++node) {
        if (ids_[node] == range.items[2].items[2].text) ++votes[node];
      }
    }
  }
  return votes;
}

size_t RedisCluster::owner(uint16_t slot) {
  const auto votes = votes_for(slot);
  if (votes.empty()) throw std::runtime_error("nobody serves the slot");
  return std::max_element(votes.begin(), votes.end(), [](auto& a, auto& b) { return a.second < b.second; })->first;
}

size_t RedisCluster::move_some(uint16_t slot, size_t from, size_t to, size_t count) {
  const std::string number = std::to_string(slot);
  const auto keys = at(from, {"CLUSTER", "GETKEYSINSLOT", number, std::to_string(count)});
  for (const redis::Reply& key : keys.items) {
    redis::Command command = {"MIGRATE", "127.0.0.1", "", "", "0", "10000"};
    const std::string port = std::to_string(ports_[to]);
    command[2] = port;
    command[3] = key.text;
    if (!options_.password.empty()) command.insert(command.end(), {"AUTH", options_.password});
    at(from, command);
  }
  return keys.items.size();
}

void RedisCluster::begin_move(uint16_t slot, size_t to, size_t move_keys) {
  const size_t from = owner(slot);
  const std::string number = std::to_string(slot);
  at(to, {"CLUSTER", "SETSLOT", number, "IMPORTING", ids_[from]});
  at(from, {"CLUSTER", "SETSLOT", number, "MIGRATING", ids_[to]});
  if (move_keys > 0) move_some(slot, from, to, move_keys);
}

void RedisCluster::end_move(uint16_t slot, size_t to) {
  const size_t from = owner(slot);
  while (move_some(slot, from, to, 100) > 0) {
  }
  const std::string number = std::to_string(slot);
  at(to, {"CLUSTER", "SETSLOT", number, "NODE", ids_[to]});
  at(from, {"CLUSTER", "SETSLOT", number, "NODE", ids_[to]});
  for (size_t i = 0; i < options_.masters; ++i) {
    if (i != from && i != to && nodes_[i]->running()) at(i, {"CLUSTER", "SETSLOT", number, "NODE", ids_[to]}, true);
  }
  // A slot that goes on before all have heard of the new owner's epoch may fall back to the old one, without its keys.
  wait("all nodes to agree", [&] { return agree(); });
}

size_t RedisCluster::wait_for_other_owner(uint16_t slot, size_t before) {
  size_t now = before;
  wait("a failover", [&] {
    now = owner(slot);
    return now != before;
  });
  return now;
}

void RedisCluster::wait(const std::string& what, const std::function<bool()>& holds) {
  const Deadline deadline = Deadline::after(kPatience);
  while (!holds()) {
    if (deadline.passed()) throw std::runtime_error("waited in vain for " + what);
    (void)::poll(nullptr, 0, kPause);  // a pause between two probes
  }
}

}  // namespace inductorfs::testing
