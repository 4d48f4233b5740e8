// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "inductorfs/base/budget.h"
#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/base/result.h"
#include "inductorfs/redis/connection.h"

namespace inductorfs::remote {

/// What a connection is used for. Each use has its own: a job's fetch never waits behind a publish of many MiB, nor
/// behind an XREAD that rests at the server.
enum class Use { kFetch, kPublish, kControl, kFollow };
inline constexpr size_t kUses = 4;

/// Connections that are kept between calls, with a limit for each use. Safe for concurrent use.
class ConnectionPool {
 public:
  using Opener = std::function<Result<std::unique_ptr<redis::Connection>>(Deadline)>;
  explicit ConnectionPool(std::array<size_t, kUses> limits);

  /// A connection on loan; goes back, or is dropped when broken, with this object. Needs external synchronisation.
  class Lease {
   public:
    Lease(ConnectionPool* pool, Use use, std::unique_ptr<redis::Connection> connection, bool reused)
        : pool_(pool), use_(use), connection_(std::move(connection)), reused_(reused) {}
    Lease(Lease&& other) noexcept = default;
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
      if (connection_ != nullptr) pool_->take_back(use_, std::move(connection_));
    }
    [[nodiscard]] redis::Connection& connection() const { return *connection_; }
    /// It has been used before: the server may have ended it meanwhile, which says nothing about the server now.
    [[nodiscard]] bool reused() const { return reused_; }

   private:
    ConnectionPool* pool_;
    Use use_;
    std::unique_ptr<redis::Connection> connection_;
    bool reused_;
  };

  enum class Freshness { kAny, kNew };
  /// kBusy: all connections of this use were on loan until the deadline, or until the budget's end in line. Else the
  /// error of the opener. `kNew` also drops the idle ones of this use.
  [[nodiscard]] Result<Lease> take(Use use, Deadline deadline, const Opener& opener,
                                   Freshness freshness = Freshness::kAny, Budget* budget = nullptr);
  /// Closes those that nobody has used for so long, but one of each use that jobs and followers wait for.
  void drop_unused(Milliseconds lifetime);
  /// Closes those that nobody uses now: they lead to a server that is no longer the right one.
  void drop_idle(Use use);

 private:
  struct Idle {
    std::unique_ptr<redis::Connection> connection;
    SteadyTime since;
  };
  struct Lane {
    std::vector<Idle> idle;  // the coldest first
    size_t open = 0;         // idle ones and those on loan
    size_t limit = 0;
  };
  using Lanes = std::array<Lane, kUses>;
  struct Slot {
    bool granted = false;
    std::unique_ptr<redis::Connection> connection;  // none: open a new one
  };
  Slot claim(Use use, Deadline deadline);
  Slot stand_in_line(Use use, Deadline deadline, Budget& budget);
  void release(Use use);
  void take_back(Use use, std::unique_ptr<redis::Connection> connection);

  Guarded<Lanes> lanes_;
};

}  // namespace inductorfs::remote
