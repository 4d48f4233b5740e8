// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "inductorfs/redis/connection.h"
#include "support/redis_server.h"

namespace inductorfs::testing {

/// A real Redis Cluster on free ports of 127.0.0.1: masters that share the slots evenly, and replicas. What it holds is
/// gone with it. Functions throw std::runtime_error when the cluster does not do what they ask within seconds.
/// Needs external synchronisation.
class RedisCluster {
 public:
  struct Options {
    size_t masters = 3;
    size_t replicas = 3;  ///< the first one of the first master, and so on
    /// A silent master is replaced after it. A busy machine is silent for a second now and then.
    int node_timeout_milliseconds = 20'000;
    std::string password{};
    bool tls = false;
  };
  RedisCluster() : RedisCluster(Options{}) {}
  explicit RedisCluster(Options options);

  /// Names all nodes.
  [[nodiscard]] std::string url() const;
  [[nodiscard]] const Certificates& certificates() const { return nodes_.front()->certificates(); }
  [[nodiscard]] size_t size() const { return nodes_.size(); }
  [[nodiscard]] uint16_t port(size_t node) const { return ports_[node]; }
  [[nodiscard]] RedisServer& server(size_t node) { return *nodes_[node]; }

  /// Runs a command at this node. An error reply is an exception unless `may_fail`.
  redis::Reply at(size_t node, const redis::Command& command, bool may_fail = false);
  /// Runs a command at the node that serves this slot.
  redis::Reply at_slot(uint16_t slot, const redis::Command& command) { return at(owner(slot), command); }
  /// The node that serves a slot, as most of those that live say.
  [[nodiscard]] size_t owner(uint16_t slot);

  /// The two halves of moving one slot. Between them its keys are in both nodes; `move_keys` of them are moved at once.
  void begin_move(uint16_t slot, size_t to, size_t move_keys);
  void end_move(uint16_t slot, size_t to);
  void move(uint16_t slot, size_t to) {
    begin_move(slot, to, 0);
    end_move(slot, to);
  }
  /// Waits until another node than `before` serves the slot. Its number.
  size_t wait_for_other_owner(uint16_t slot, size_t before);
  /// Waits until a restarted node follows its new master, and no node has failed.
  void wait_until_whole();

 private:
  void start_nodes();
  void join();
  void wait(const std::string& what, const std::function<bool()>& holds);
  /// Says whether the running nodes say the same of all nodes.
  [[nodiscard]] bool agree();
  /// How many of the nodes say that a node serves the slot.
  [[nodiscard]] std::map<size_t, size_t> votes_for(uint16_t slot);
  size_t move_some(uint16_t slot, size_t from, size_t to, size_t count);

  const Options options_;
  TemporaryDirectory authority_;
  std::vector<uint16_t> ports_;
  std::vector<std::unique_ptr<RedisServer>> nodes_;
  std::vector<std::string> ids_;
};

}  // namespace inductorfs::testing
