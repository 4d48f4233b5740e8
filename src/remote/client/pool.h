// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "inductorfs/base/budget.h"
#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/base/result.h"
#include "inductorfs/redis/connection.h"

namespace inductorfs::remote {

/// The purpose of a connection. Each purpose has connections of its own: a job's fetch never waits behind a publish of
/// many MiB, nor behind an XREAD that waits at the server.
enum class Use { kFetch, kPublish, kControl, kFollow };
inline constexpr size_t kUses = 4;

/// Connections that are kept between calls, with a limit for each use. It owns the idle connections; take() blocks.
/// Safe for concurrent use.
class ConnectionPool {
 public:
  using Opener = std::function<Result<std::unique_ptr<redis::Connection>>(Deadline)>;
  /// `epoch` tells which server is meant: a connection that was opened under another number is not lent again.
  ConnectionPool(std::array<size_t, kUses> limits, std::function<uint64_t()> epoch);

  /// A connection on loan. The destructor gives it back, or drops it when it is broken. Needs external synchronisation.
  class Lease {
   public:
    Lease(ConnectionPool* pool, Use use, std::unique_ptr<redis::Connection> connection, uint64_t epoch, bool reused)
        : pool_(pool), use_(use), connection_(std::move(connection)), epoch_(epoch), reused_(reused) {}
    Lease(Lease&& other) noexcept = default;
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
      if (connection_ != nullptr) pool_->take_back(use_, std::move(connection_), epoch_);
    }
    [[nodiscard]] redis::Connection& connection() const { return *connection_; }
    /// The connection has been used before: the server may have ended it meanwhile, which says nothing about the server
    /// now.
    [[nodiscard]] bool reused() const { return reused_; }
    /// Says whether it leads to the server that is meant now.
    [[nodiscard]] bool is_current() const { return epoch_ == pool_->epoch_(); }

   private:
    ConnectionPool* pool_;
    Use use_;
    std::unique_ptr<redis::Connection> connection_;
    uint64_t epoch_;
    bool reused_;
  };

  enum class Freshness { kAny, kNew };
  /// Lends a connection. kBusy when all connections of this use were on loan until the deadline, or until the budget's
  /// end in line; otherwise errors are those of the opener. `kNew` also drops the idle connections of this use.
  [[nodiscard]] Result<Lease> take(Use use, Deadline deadline, const Opener& opener,
                                   Freshness freshness = Freshness::kAny, Budget* budget = nullptr);
  /// Lends a connection that is idle and in order; empty when there is none. Does not wait.
  [[nodiscard]] std::optional<Lease> take_idle(Use use);
  /// Closes connections that were unused for `lifetime`, except one of each use that jobs and followers wait for.
  void drop_unused(Milliseconds lifetime);
  /// Closes the idle connections of a use, because they lead to a server that is no longer the right one.
  void drop_idle(Use use);

 private:
  struct Idle {
    std::unique_ptr<redis::Connection> connection;
    uint64_t epoch;
    SteadyTime since;
  };
  struct Lane {
    std::vector<Idle> idle;  ///< the one that was unused longest comes first
    size_t open = 0;         ///< idle connections and those on loan
    size_t limit = 0;
  };
  using Lanes = std::array<Lane, kUses>;
  struct Grant {
    bool granted = false;
    std::unique_ptr<redis::Connection> connection;  ///< nullptr: open a new one
    uint64_t epoch = 0;
  };
  Grant claim(Use use, Deadline deadline);
  Grant stand_in_line(Use use, Deadline deadline, Budget& budget);
  void release(Use use);
  void take_back(Use use, std::unique_ptr<redis::Connection> connection, uint64_t epoch);

  const std::function<uint64_t()> epoch_;
  Guarded<Lanes> lanes_;
};

}  // namespace inductorfs::remote
