// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/counters.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/redis/url.h"
#include "inductorfs/remote/options.h"
#include "remote/client/server_link.h"
#include "remote/client/slot_map.h"

namespace inductorfs::remote {

/// The masters of a Redis Cluster: which of them serves each slot, and the link to each. It learns the map from any
/// node that answers, mends it by what the nodes redirect, and asks for it anew, at most about once a second, while
/// something is wrong with it. Calls block only where they say so. Safe for concurrent use.
class Shards {
 public:
  using Link = std::shared_ptr<ServerLink>;

  /// `endpoint` names some nodes of the cluster; every other node is reached in the same way, with the same password.
  Shards(redis::Endpoint endpoint, const RemoteOptions& options, Counters& counters);

  /// Makes sure that there is a map, and asks for it anew when that is due. Blocks on the network, up to the deadline.
  /// An error only while there is no map at all.
  [[nodiscard]] Result<void> prepare(const CallTerms& terms);
  /// Returns the link to the master of a slot; nullptr when the slot has none.
  [[nodiscard]] Link of(uint16_t slot) const;
  /// Returns the link to a node that the cluster has named; nullptr when it has named too many.
  [[nodiscard]] Link at(const redis::HostPort& node);
  /// Returns the links to all masters.
  [[nodiscard]] std::vector<Link> masters() const;
  /// Returns the number of slots that no master serves.
  [[nodiscard]] size_t uncovered() const;

  /// Notes that a slot has moved, as a node has said.
  void moved(uint16_t slot, const redis::HostPort& to);
  /// Notes that the map may be wrong, so that it is asked for anew.
  void doubt();

  [[nodiscard]] bool resting() const;
  [[nodiscard]] bool troubled() const;
  /// Notes how a conversation has ended.
  void ended(const Result<void>& outcome);
  /// Reachable while any master is; the error is that of one that is not, or why there is no map, or of the last
  /// conversation.
  [[nodiscard]] ServerLink::Condition condition() const;
  void close_idle(Milliseconds lifetime);

 private:
  struct State {
    std::optional<SlotMap> told;  ///< the last answer, as it came
    SlotMap map;                  ///< the same, mended by redirections
    std::map<redis::HostPort, Link> links;
    bool doubted = true;
    bool asking = false;  ///< a thread asks for the map
    SteadyTime next{};    ///< it is not asked for again before
    std::string error;    ///< why there is no map, or none that is new
    std::string said;     ///< the last error of a conversation, until one goes well
    std::minstd_rand random{std::random_device{}()};
  };

  Link link_to(State& state, const redis::HostPort& node);
  [[nodiscard]] std::vector<Link> candidates();
  [[nodiscard]] Result<SlotMap> ask(const CallTerms& terms);
  [[nodiscard]] Result<SlotMap> ask_one(ServerLink& link, const CallTerms& terms);
  void adopt(State& state, SlotMap&& map);
  template <typename Says>
  [[nodiscard]] bool all_of_them(const Says& says) const;

  const redis::Endpoint endpoint_;
  const RemoteOptions& options_;
  Counters& counters_;
  Counter& asked_;
  Guarded<State> state_;
};

}  // namespace inductorfs::remote
