// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/budget.h"
#include "inductorfs/base/clock.h"
#include "inductorfs/base/result.h"
#include "inductorfs/redis/url.h"

namespace inductorfs::redis {

/// A parsed reply. Errors of the server are values here: whether WRONGTYPE is fatal is the caller's to say.
struct Reply {
  enum class Kind { kNil, kStatus, kError, kInteger, kString, kArray };
  Kind kind = Kind::kNil;
  int64_t integer = 0;
  std::string text;          ///< kStatus, kError, kString
  std::vector<Reply> items;  ///< kArray

  [[nodiscard]] bool is_error() const { return kind == Kind::kError; }
};

/// An error reply as an Error, with what an operator can do about it: READONLY, LOADING, OOM, MISCONF, CLUSTERDOWN,
/// MASTERDOWN, TRYAGAIN, BUSY, NOREPLICAS and "max number of clients" are kUnavailable, NOAUTH, WRONGPASS, NOPERM and
/// DENIED are kNotPermitted, MOVED and ASK (Redis Cluster) are kNotSupported, all else kInternal.
[[nodiscard]] Error to_error(const Reply& reply);

using Command = std::vector<std::string_view>;

/// How long a conversation may take. Progress is any byte that the server sent or took.
struct Patience {
  Milliseconds total{10000};
  Milliseconds without_progress{250};
  /// Asked at least every 100 ms; when it says yes the answer is kBusy and the connection has ended.
  const std::function<bool()>* cancelled = nullptr;
  /// Instead of `without_progress`: one budget for several conversations. Only what the server sends is progress then:
  /// a whole reply, or kProgressBytes.
  Budget* budget = nullptr;
};

/// What a server must send of a long reply for a budget to begin anew: one that drips a byte now and then is no better
/// than one that is silent, and 4 KiB a second would not bring anything in time.
inline constexpr size_t kProgressBytes = 1024;

/// One connection: a non-blocking, close-on-exec socket of our own, hiredis as the parser with limits on depth, element
/// count and bulk length, no SIGPIPE, TLS with the host name checked. Any I/O error, timeout or protocol error ends the
/// connection: every later call answers kUnavailable, and the owner makes a new one.
///
/// Blocks up to the patience given. Needs external synchronisation: one owner at a time.
class Connection {
 public:
  virtual ~Connection() = default;

  /// Resolves, connects (all addresses), greets (AUTH, SELECT, CLIENT SETNAME) within the deadline. `cancelled` and
  /// `budget` as in Patience.
  [[nodiscard]] static Result<std::unique_ptr<Connection>> open(const Endpoint& endpoint, Deadline deadline,
                                                                const std::function<bool()>* cancelled = nullptr,
                                                                Budget* budget = nullptr);

  /// Sends all commands in one go and hands over each reply, in order. `on_reply` may end the conversation with an
  /// error, which also ends the connection unless it was the last reply. kTimedOut, kUnavailable, kCorrupt (not the
  /// protocol, or over a limit).
  [[nodiscard]] virtual Result<void> pipeline(const std::vector<Command>& commands, Patience patience,
                                              const std::function<Result<void>(size_t, Reply&&)>& on_reply) = 0;
  [[nodiscard]] Result<Reply> call(const Command& command, Patience patience);
  /// A call that may rest for `block` at the server (XREAD BLOCK); `cancelled` is asked at least every 100 ms. When it
  /// says yes the answer is kBusy and the connection has ended: its reply may still be on the way.
  [[nodiscard]] virtual Result<Reply> call_blocking(const Command& command, Milliseconds block,
                                                    const std::function<bool()>& cancelled) = 0;
  /// Also true when the server has closed the idle connection, or sent something that nobody asked for.
  [[nodiscard]] virtual bool broken() const = 0;
};

}  // namespace inductorfs::redis
