// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/result.h"
#include "inductorfs/redis/connection.h"
#include "remote/client/server_link.h"

namespace inductorfs::remote {

/// One conversation with the server, or with the servers of a Redis Cluster, up to a deadline. Its calls block.
/// Confined to the calling thread.
class Conversation {
 public:
  using OnReply = std::function<Result<void>(size_t, redis::Reply&&)>;
  virtual ~Conversation() = default;

  /// Sends all commands and passes each reply to `on_reply`, in the order of the commands. Commands whose first keys
  /// share a slot are executed in that order; others, on a cluster, in any. An error: no command was answered, or the
  /// rest was not. On a cluster, when a shard is away and others answer, redis::unreachable() is the reply to each
  /// command of that shard.
  [[nodiscard]] virtual Result<void> pipeline(const std::vector<redis::Command>& commands, const OnReply& on_reply) = 0;
  /// The same, but on a cluster the replies come in any order, so that a shard that is slow holds up no other's.
  [[nodiscard]] virtual Result<void> pipeline_in_any_order(const std::vector<redis::Command>& commands,
                                                           const OnReply& on_reply) = 0;
  /// Says whether keys lie on several servers.
  [[nodiscard]] virtual bool spans_servers() const = 0;
  [[nodiscard]] virtual Deadline deadline() const = 0;

  [[nodiscard]] Result<redis::Reply> call(const redis::Command& command);
  /// Returns all replies of a pipeline. An error reply is a value here too.
  [[nodiscard]] Result<std::vector<redis::Reply>> call_all(const std::vector<redis::Command>& commands);
};

/// A conversation with one server, over one connection. Confined to the calling thread.
class ServerConversation final : public Conversation {
 public:
  ServerConversation(ServerTurn& turn, Deadline deadline) : turn_(turn), deadline_(deadline) {}

  [[nodiscard]] Result<void> pipeline(const std::vector<redis::Command>& commands, const OnReply& on_reply) override;
  [[nodiscard]] Result<void> pipeline_in_any_order(const std::vector<redis::Command>& commands,
                                                   const OnReply& on_reply) override {
    return pipeline(commands, on_reply);
  }
  [[nodiscard]] bool spans_servers() const override { return false; }
  [[nodiscard]] Deadline deadline() const override { return deadline_; }

  [[nodiscard]] Result<redis::Reply> call_blocking(const redis::Command& command, Milliseconds block,
                                                   const std::function<bool()>& cancelled);
  /// As ServerTurn::fresh().
  [[nodiscard]] bool fresh() const { return turn_.fresh(); }

 private:
  ServerTurn& turn_;
  Deadline deadline_;
};

}  // namespace inductorfs::remote
