// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "breaker.h"
#include "inductorfs/base/budget.h"
#include "inductorfs/base/clock.h"
#include "inductorfs/base/counters.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/redis/connection.h"
#include "inductorfs/remote/remote.h"
#include "pool.h"

namespace inductorfs::remote {

/// One conversation with the server, up to a deadline. Its calls block. Confined to the calling thread.
class Conversation {
 public:
  using OnReply = std::function<Result<void>(size_t, redis::Reply&&)>;
  /// The limits of each call, in addition to the deadline of all.
  struct Bounds {
    Milliseconds without_progress;
    const std::function<bool()>* cancelled = nullptr;
    Budget* budget = nullptr;  ///< as redis::Patience::budget
  };
  Conversation(redis::Connection& connection, bool fresh, Deadline deadline, Bounds bounds,
               std::function<void()> on_first_reply)
      : connection_(connection),
        fresh_(fresh),
        deadline_(deadline),
        bounds_(bounds),
        on_first_reply_(std::move(on_first_reply)) {}

  [[nodiscard]] Result<void> pipeline(const std::vector<redis::Command>& commands, const OnReply& on_reply);
  [[nodiscard]] Result<redis::Reply> call(const redis::Command& command);
  /// Returns all replies of a pipeline. An error reply is a value here too.
  [[nodiscard]] Result<std::vector<redis::Reply>> call_all(const std::vector<redis::Command>& commands);
  [[nodiscard]] Result<redis::Reply> call_blocking(const redis::Command& command, Milliseconds block,
                                                   const std::function<bool()>& cancelled);
  [[nodiscard]] Deadline deadline() const { return deadline_; }
  /// Says whether the caller should first ask something that is answered at once, because the server may be another
  /// than the last one, or others wait for this call's first answer.
  [[nodiscard]] bool fresh() const { return fresh_; }
  /// Says whether the server has answered at least once.
  [[nodiscard]] bool heard() const { return heard_; }

 private:
  void hear();

  redis::Connection& connection_;
  bool fresh_;
  Deadline deadline_;
  Bounds bounds_;
  std::function<void()> on_first_reply_;
  bool heard_ = false;
};

/// The way in which all operations of the Redis remote reach the server. It owns the pool, the breakers and the health,
/// and tries once more when an idle connection turns out to be dead. Calls block up to their deadline.
/// Safe for concurrent use.
class RedisClient {
 public:
  RedisClient(RemoteOptions options, redis::Endpoint endpoint, Counters& counters);
  /// Returns a session with the same pool, breakers and health, whose calls end soon with kUnavailable once `cancelled`
  /// says so.
  [[nodiscard]] RedisClient cancellable(std::function<bool()> cancelled) const;

  using Talk = std::function<Result<void>(Conversation&)>;
  /// Runs a conversation. `talk` may be called a second time, from its start, when the first connection was dead before
  /// any reply. With a `budget` both tries together take no longer than the budget.
  [[nodiscard]] Result<void> run(Use use, Deadline deadline, const Talk& talk, Budget* budget = nullptr);
  /// Notes that the server answers but refuses to give what is fetched: a round trip for each lookup would not change
  /// that.
  void refused(const Error& error);
  /// Says whether a fetch would be refused at once.
  [[nodiscard]] bool resting() const;
  /// Makes the next call of this use open a new connection, and so resolve the server's name anew.
  void hang_up(Use use) { shared_->pool.drop_idle(use); }
  /// Closes connections that were unused for RemoteOptions::idle_lifetime.
  void close_idle() { shared_->pool.drop_unused(options().idle_lifetime); }

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
    Counter& breaker_open;
    ConnectionPool pool;
    Breaker breaker;
    /// For fetches alone: to all other calls a server, or a network, that passes small answers and no large ones looks
    /// well, and their success must not send each lookup into the same wait again.
    Breaker fetches;
    Guarded<Condition> condition;
  };

  /// One call of run(). Confined to the calling thread.
  struct Call {
    Use use;
    Deadline deadline;
    Budget* budget;
    Breaker::Ticket ticket = Breaker::Ticket::kNormal;
    Breaker::Ticket fetch_ticket = Breaker::Ticket::kNormal;
    bool connected = false;  ///< has a connection that was greeted
    bool heard = false;      ///< the server has answered something
  };

  [[nodiscard]] bool cancelled() const { return cancelled_ && cancelled_(); }
  [[nodiscard]] Result<void> admit(Call& call);
  [[nodiscard]] Result<void> attempt(const Talk& talk, Call& call);
  [[nodiscard]] Result<ConnectionPool::Lease> connect(const Call& call, ConnectionPool::Freshness freshness);
  [[nodiscard]] Conversation::Bounds bounds(const Call& call) const;
  /// These tell the breakers how the call ended.
  void abandon(const Call& call);
  void settle(const Error& error, bool server_fault, const Call& call);

  std::shared_ptr<Shared> shared_;
  std::function<bool()> cancelled_;
};

}  // namespace inductorfs::remote
