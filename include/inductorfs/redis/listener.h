// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/result.h"
#include "inductorfs/redis/connection.h"
#include "inductorfs/redis/url.h"

namespace inductorfs::redis {

/// A connection on which the server speaks first: it hears the messages of the channels that it has subscribed to. Its
/// limits and its TLS are those of Connection. Any error ends it. Needs external synchronisation.
class Listener {
 public:
  virtual ~Listener() = default;
  /// Connects and greets as Connection::open() does.
  [[nodiscard]] static Result<std::unique_ptr<Listener>> open(const Endpoint& endpoint, Deadline deadline,
                                                              const std::function<bool()>* cancelled = nullptr);
  /// Sends a command, whose reply next() returns among the messages. Blocks while the server does not read, until the
  /// deadline.
  [[nodiscard]] virtual Result<void> send(const Command& command, Deadline deadline) = 0;
  /// Returns what the server has sent, if it is whole; does not block. kUnavailable: the connection has ended.
  /// kCorrupt: not the protocol, or over a limit.
  [[nodiscard]] virtual Result<std::optional<Reply>> next() = 0;

  /// Waits until next() of one of them may return something, or the deadline; asks `cancelled` at least every 100 ms
  /// and ends with kBusy when it says so. Requires: next() has returned nothing for each of them.
  [[nodiscard]] static Result<void> wait(std::span<Listener* const> listeners, Deadline deadline,
                                         const std::function<bool()>& cancelled);
};

}  // namespace inductorfs::redis
