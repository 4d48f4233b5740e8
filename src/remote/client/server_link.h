// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "inductorfs/base/budget.h"
#include "inductorfs/base/clock.h"
#include "inductorfs/base/counters.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/redis/connection.h"
#include "inductorfs/remote/options.h"
#include "remote/client/breaker.h"
#include "remote/client/pool.h"

namespace inductorfs::remote {

/// What a caller wants of a server, and how long it waits. `cancelled` must outlive the call.
struct CallTerms {
  Use use;
  Deadline deadline;
  Budget* budget = nullptr;  ///< as redis::Patience::budget
  const std::function<bool()>* cancelled = nullptr;

  [[nodiscard]] bool is_cancelled() const { return cancelled != nullptr && (*cancelled)(); }
};

/// One server: the connections to it, its breakers and its health. It must outlive the turns at it. Safe for concurrent
/// use.
class ServerLink {
 public:
  ServerLink(redis::Endpoint endpoint, const RemoteOptions& options, Counters& counters);

  struct Condition {
    bool reachable = false;
    std::string last_error;
  };
  [[nodiscard]] Condition condition() const {
    return condition_.with([](const Condition& condition) { return condition; });
  }
  [[nodiscard]] const redis::Endpoint& endpoint() const { return endpoint_; }
  [[nodiscard]] ConnectionPool& pool() { return pool_; }
  /// Says whether a fetch would be refused at once.
  [[nodiscard]] bool resting() const;
  /// Says whether a breaker is open.
  [[nodiscard]] bool troubled() const { return breaker_.open() || fetches_.open(); }
  /// Notes that the server answers but refuses to give what is fetched: a round trip for each lookup would not change
  /// that.
  void refused(const Error& error);

 private:
  friend class ServerTurn;

  const redis::Endpoint endpoint_;
  const RemoteOptions& options_;
  Counter& opened_;
  Counter& refused_;
  Counter& breaker_opened_;
  ConnectionPool pool_;
  Breaker breaker_;
  /// For fetches alone: to all other calls a server, or a network, that passes small answers and no large ones looks
  /// well, and their success must not send each lookup into the same wait again.
  Breaker fetches_;
  Guarded<Condition> condition_;
};

/// One caller's turn at a server: let in by the breakers, with a connection on loan. The breakers learn how the turn
/// has ended from succeed() or end(); the destructor tells them nothing. Confined to the calling thread.
class ServerTurn {
 public:
  ServerTurn(ServerLink& link, const CallTerms& terms) : link_(&link), terms_(terms) {}
  ServerTurn(ServerTurn&& other) noexcept;
  ServerTurn& operator=(ServerTurn&&) = delete;
  ~ServerTurn();

  /// Asks the breakers; kUnavailable at once while they rest. Must come first.
  [[nodiscard]] Result<void> admit();
  /// Takes a connection that is idle, if there is one; does not wait.
  [[nodiscard]] bool take_idle();
  /// Takes a connection, or opens one; blocks up to the deadline. After an error the turn has ended. May be called once
  /// more, with kNew, after died_before().
  [[nodiscard]] Result<void> connect(ConnectionPool::Freshness freshness);

  void give_back() { lease_.reset(); }

  [[nodiscard]] redis::Connection& connection() const { return lease_->connection(); }
  /// The limits of one conversation on the connection.
  [[nodiscard]] redis::Patience patience() const;
  /// Says whether the caller should first ask something that is answered at once, because the server may be another
  /// than the last one, or others wait for this call's first answer.
  [[nodiscard]] bool fresh() const { return !lease_->reused() || ticket_ != Breaker::Ticket::kNormal; }
  /// Says whether the connection still leads to the server that is meant.
  [[nodiscard]] bool is_current() const { return lease_->is_current(); }
  /// Says whether the server has answered at least once.
  [[nodiscard]] bool heard() const { return heard_; }
  /// Must be called at the first answer, not at the end: a probe that then rests in XREAD must not hold up everybody
  /// else.
  void hear();

  /// Says whether this error was an idle connection that the server had ended before, so that a new connection is worth
  /// one more try.
  [[nodiscard]] bool died_before(const Error& error) const;
  void succeed();
  /// Ends the turn by an error, and returns what the caller is to be told.
  [[nodiscard]] Error end(const Error& error);

 private:
  void abandon();
  void settle(const Error& error, bool server_fault);

  ServerLink* link_;
  CallTerms terms_;
  Breaker::Ticket ticket_ = Breaker::Ticket::kNormal;
  Breaker::Ticket fetch_ticket_ = Breaker::Ticket::kNormal;
  std::optional<ConnectionPool::Lease> lease_;
  bool admitted_ = false;
  bool heard_ = false;    ///< the server has answered something
  bool patient_ = false;  ///< its end says more of the server than that of a lookup, which waits for a moment
};

}  // namespace inductorfs::remote
