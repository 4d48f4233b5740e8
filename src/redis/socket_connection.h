// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "inductorfs/redis/connection.h"
#include "reply_parser.h"
#include "transport.h"

namespace inductorfs::redis {

/// The one kind of connection that Connection::open() makes. Needs external synchronisation.
class SocketConnection final : public Connection {
 public:
  /// What one conversation wants and how far it is.
  struct Talk {
    const std::vector<Command>& commands;
    const std::function<Result<void>(size_t, Reply&&)>& on_reply;
    Deadline total;
    Milliseconds without_progress;
    const std::function<bool()>* cancelled = nullptr;
    Budget* budget = nullptr;
    size_t formatted = 0;
    size_t received = 0;
    std::string out{};
    size_t sent = 0;
    size_t unnoted = 0;  ///< bytes that came since the last progress
    bool moved = false;  ///< the last step moved a byte
    Deadline quiet{SteadyTime{}};

    [[nodiscard]] Deadline patience_end() const { return budget != nullptr ? budget->end() : quiet; }
    [[nodiscard]] bool writing() const { return sent < out.size() || formatted < commands.size(); }
    static Talk of(const std::vector<Command>& commands, const Patience& patience,
                   const std::function<Result<void>(size_t, Reply&&)>& on_reply);
  };

  explicit SocketConnection(std::unique_ptr<Transport> transport) : transport_(std::move(transport)) {}

  Result<void> pipeline(const std::vector<Command>& commands, Patience patience,
                        const std::function<Result<void>(size_t, Reply&&)>& on_reply) override;
  Result<Reply> call_blocking(const Command& command, Milliseconds block,
                              const std::function<bool()>& cancelled) override;
  bool broken() const override { return transport_ == nullptr || !transport_->idle_ok(); }

  /// Begins a conversation, of which each step() moves what can be moved without waiting; true: all replies have come.
  /// end() must follow, whatever the outcome is.
  [[nodiscard]] Result<void> begin(Talk& talk) const;
  [[nodiscard]] Result<bool> step(Talk& talk);
  void end(const Talk& talk);
  /// Returns the error of a conversation whose time is over.
  [[nodiscard]] static tl::unexpected<Error> late(const Talk& talk);
  /// Requires: the connection has not ended.
  [[nodiscard]] const Transport& transport() const { return *transport_; }
  /// Gives the transport away; the connection has ended then. Requires: the connection has not ended.
  [[nodiscard]] std::unique_ptr<Transport> release() { return std::move(transport_); }

 private:
  [[nodiscard]] Result<void> hold(Talk& talk);
  [[nodiscard]] Result<void> converse(Talk& talk);
  [[nodiscard]] Result<size_t> write_some(Talk& talk);
  [[nodiscard]] Result<size_t> read_some(Talk& talk);
  [[nodiscard]] Result<void> rest(const Talk& talk) const;

  std::unique_ptr<Transport> transport_;
  ReplyParser parser_;
};

}  // namespace inductorfs::redis
