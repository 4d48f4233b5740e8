// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/budget.h"
#include "inductorfs/base/clock.h"
#include "inductorfs/base/defaults.h"
#include "inductorfs/base/result.h"
#include "inductorfs/redis/url.h"

namespace inductorfs::redis {

/// A parsed reply. Errors of the server are values here: the caller decides whether WRONGTYPE, for example, is fatal.
struct Reply {
  enum class Kind { kNil, kStatus, kError, kInteger, kString, kArray };
  Kind kind = Kind::kNil;
  int64_t integer = 0;
  std::string text;          ///< kStatus, kError, kString
  std::vector<Reply> items;  ///< kArray

  [[nodiscard]] bool is_error() const { return kind == Kind::kError; }
};

/// Converts an error reply to an Error that says what an operator can do about it: READONLY, LOADING, OOM, MISCONF,
/// CLUSTERDOWN, MASTERDOWN, TRYAGAIN, BUSY, NOREPLICAS and "max number of clients" are kUnavailable; NOAUTH, WRONGPASS,
/// NOPERM and DENIED are kNotPermitted; MOVED and ASK (Redis Cluster) are kNotSupported; everything else is kInternal.
[[nodiscard]] Error to_error(const Reply& reply);
/// Makes the reply to a command that no server could be asked, because its shard of a Redis Cluster is away. to_error()
/// turns it back into the reason, as kUnavailable.
[[nodiscard]] Reply unreachable(const Error& why);
[[nodiscard]] bool is_unreachable(const Reply& reply);

using Command = std::vector<std::string_view>;

/// How long a conversation may take. Any byte that the server sent or took counts as progress.
struct Patience {
  Milliseconds total{10000};
  Milliseconds without_progress = defaults::kLookupPatience;
  /// Asked at least every 100 ms; when it answers true the call ends with kBusy and the connection has ended.
  const std::function<bool()>* cancelled = nullptr;
  /// If set, it is used instead of `without_progress`: one budget for several conversations. Then only what the server
  /// sends is progress: a whole reply, or kProgressBytes of it.
  Budget* budget = nullptr;
};

/// The number of bytes of a long reply that counts as progress for a budget. A server that sends one byte now and then
/// is no better than a silent one, and 4 KiB a second would not bring anything in time.
inline constexpr size_t kProgressBytes = 1024;

/// One connection to a server. It owns a non-blocking, close-on-exec socket and lets hiredis parse, with limits on
/// depth, element count and bulk length; it raises no SIGPIPE, and with TLS it checks the host name. Any I/O error,
/// timeout or protocol error ends the connection: every later call answers kUnavailable, and the owner makes a new one.
///
/// Calls block up to the patience given. One thread owns a connection at a time. Needs external synchronisation.
class Connection {
 public:
  virtual ~Connection() = default;

  /// Resolves the host, connects (to all its addresses in turn) and greets (AUTH, SELECT, CLIENT SETNAME) within the
  /// deadline. `cancelled` and `budget` are those of Patience.
  [[nodiscard]] static Result<std::unique_ptr<Connection>> open(const Endpoint& endpoint, Deadline deadline,
                                                                const std::function<bool()>* cancelled = nullptr,
                                                                Budget* budget = nullptr);

  /// Sends all commands in one go and passes each reply to `on_reply`, in order. `on_reply` may end the conversation
  /// with an error, which also ends the connection unless it was the last reply. Errors: kTimedOut, kUnavailable,
  /// kCorrupt (not the protocol, or over a limit).
  [[nodiscard]] virtual Result<void> pipeline(const std::vector<Command>& commands, Patience patience,
                                              const std::function<Result<void>(size_t, Reply&&)>& on_reply) = 0;
  [[nodiscard]] Result<Reply> call(const Command& command, Patience patience);
  /// Calls a command that may wait at the server for `block` (XREAD BLOCK). `cancelled` is asked at least every 100 ms;
  /// when it answers true, the call ends with kBusy and the connection has ended, because the reply may still be on its
  /// way.
  [[nodiscard]] virtual Result<Reply> call_blocking(const Command& command, Milliseconds block,
                                                    const std::function<bool()>& cancelled) = 0;
  /// Says whether the connection has ended. True also when the server has closed the idle connection, or has sent
  /// something that was not asked for.
  [[nodiscard]] virtual bool broken() const = 0;
};

/// One of several pipelines that run at the same time, each on a connection of its own.
struct Exchange {
  Connection* connection = nullptr;
  std::vector<Command> commands;
  std::function<Result<void>(size_t, Reply&&)> on_reply;
  Result<void> outcome{};  ///< as of Connection::pipeline()
};
/// Runs all of them; blocks until each has ended. The patience is that of each, and its budget is common to all.
/// Requires: no connection stands twice, and Connection::open() has made all.
void exchange_all(std::span<Exchange> exchanges, const Patience& patience);

}  // namespace inductorfs::redis
