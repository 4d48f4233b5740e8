// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/redis/listener.h"
#include "inductorfs/remote/options.h"
#include "remote/client/shards.h"

namespace inductorfs::remote {

/// Listens to the channels of followed scopes, on one connection to each shard. On a cluster this replaces the XREAD
/// that waits: XREAD takes keys of one slot only, so each scope would need a connection that is blocked for it. A
/// message is a hint and no more, because messages may be lost: whoever waits looks at the heads now and then, too.
/// Calls block where they say so. Needs external synchronisation.
class ChannelListeners {
 public:
  ChannelListeners(Shards& shards, const RemoteOptions& options) : shards_(shards), options_(options) {}

  /// Listens to these channels and to no others. Connects where it must; blocks up to the deadline.
  void listen_to(const std::set<std::string>& channels, Deadline deadline, const std::function<bool()>& cancelled);
  /// Says whether a message on this channel would be heard.
  [[nodiscard]] bool hears(const std::string& channel) const;
  /// Waits, until the deadline at most. Returns the channels that something may have happened to: a message came, or
  /// listening has begun just now. Returns none early when a channel can no longer be heard.
  [[nodiscard]] std::set<std::string> wait(Deadline deadline, const std::function<bool()>& cancelled);

 private:
  /// What one shard is asked to tell.
  struct Line {
    Shards::Link link;
    std::unique_ptr<redis::Listener> listener;
    std::set<std::string> heard;                ///< channels of which the server has said that it tells them
    std::deque<std::string> pending;            ///< asked for, in order; not answered yet
    std::map<std::string, SteadyTime> refused;  ///< and when to ask again
    SteadyTime last{};                          ///< when the server last sent anything
    bool pinged = false;
    SteadyTime retry_at{};
  };

  [[nodiscard]] Line& line_to(const Shards::Link& link);
  [[nodiscard]] bool connect(Line& line, Deadline deadline, const std::function<bool()>& cancelled) const;
  void subscribe(Line& line, const std::string& channel, Deadline deadline);
  void leave_others(Line& line, const std::set<std::string>& wanted, Deadline deadline);
  void drain(Line& line);
  void take(Line& line, redis::Reply&& message);
  void take_refusal(Line& line, const redis::Reply& reply);
  void lose(Line& line);
  /// Asks a server that has been silent for long whether it is there. Returns when to do it again.
  [[nodiscard]] SteadyTime ping(Line& line);

  Shards& shards_;
  const RemoteOptions& options_;
  std::vector<Line> lines_;
  std::set<std::string> named_;
  bool changed_ = false;  ///< a channel can no longer be heard
};

}  // namespace inductorfs::remote
