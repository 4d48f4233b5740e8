// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "breaker.h"
#include "inductorfs/base/clock.h"
#include "inductorfs/base/counters.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/redis/connection.h"
#include "inductorfs/remote/remote.h"
#include "pool.h"

namespace inductorfs::remote {

/// One conversation with the server, with its deadline. Confined to the calling thread.
class Channel {
 public:
  using OnReply = std::function<Result<void>(size_t, redis::Reply&&)>;
  /// `cancelled` may be nullptr.
  Channel(redis::Connection& connection, Deadline deadline, Milliseconds without_progress,
          const std::function<bool()>* cancelled, std::function<void()> on_first_reply)
      : connection_(connection),
        deadline_(deadline),
        without_progress_(without_progress),
        cancelled_(cancelled),
        on_first_reply_(std::move(on_first_reply)) {}

  [[nodiscard]] Result<void> pipeline(const std::vector<redis::Command>& commands, const OnReply& on_reply);
  [[nodiscard]] Result<redis::Reply> call(const redis::Command& command);
  /// All replies of a pipeline. An error reply is a value here too.
  [[nodiscard]] Result<std::vector<redis::Reply>> call_all(const std::vector<redis::Command>& commands);
  [[nodiscard]] Result<redis::Reply> call_blocking(const redis::Command& command, Milliseconds block,
                                                   const std::function<bool()>& cancelled);
  [[nodiscard]] Deadline deadline() const { return deadline_; }
  /// The server has answered at least once.
  [[nodiscard]] bool heard() const { return heard_; }

 private:
  void hear();

  redis::Connection& connection_;
  Deadline deadline_;
  Milliseconds without_progress_;
  const std::function<bool()>* cancelled_;
  std::function<void()> on_first_reply_;
  bool heard_ = false;
};

/// How all operations of the Redis remote reach the server: pool, breaker, one more try when an idle connection turns
/// out to be dead, health. Safe for concurrent use.
class Session {
 public:
  Session(RemoteOptions options, redis::Endpoint endpoint, Counters& counters);
  /// The same pool, breaker and health, for calls that end soon with kUnavailable once `cancelled` says so.
  [[nodiscard]] Session cancellable(std::function<bool()> cancelled) const;

  using Talk = std::function<Result<void>(Channel&)>;
  /// `talk` may be called a second time, from its start, when the first connection was dead before any reply.
  [[nodiscard]] Result<void> run(Use use, Deadline deadline, const Talk& talk);

  [[nodiscard]] const RemoteOptions& options() const { return shared_->options; }
  [[nodiscard]] Counters& counters() const { return shared_->counters; }
  [[nodiscard]] Remote::Health health() const;

 private:
  struct Condition {
    bool reachable = false;
    std::string last_error;
  };
  struct Shared {
    Shared(RemoteOptions given, redis::Endpoint server, Counters& all);
    const RemoteOptions options;
    const redis::Endpoint endpoint;
    Counters& counters;
    Counter& opened;
    Counter& refused;
    Counter& breaker_opened;
    ConnectionPool pool;
    Breaker breaker;
    Guarded<Condition> condition;
  };

  [[nodiscard]] bool cancelled() const { return cancelled_ && cancelled_(); }
  [[nodiscard]] Result<void> attempt(Use use, Deadline deadline, const Talk& talk, Breaker::Ticket& ticket);
  [[nodiscard]] Result<ConnectionPool::Lease> connect(Use use, Deadline deadline, ConnectionPool::Freshness freshness);
  void settle(const Error& error, bool server_fault, Breaker::Ticket ticket);
  void note_success();

  std::shared_ptr<Shared> shared_;
  std::function<bool()> cancelled_;
};

}  // namespace inductorfs::remote
