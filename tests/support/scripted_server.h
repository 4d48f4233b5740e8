// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "inductorfs/base/fd.h"

namespace inductorfs::testing {

/// One connection of a ScriptedServer, as its script sees it. Confined to the connection's thread.
class ScriptedClient {
 public:
  ScriptedClient(Fd socket, const std::atomic<bool>& stopping) : socket_(std::move(socket)), stopping_(stopping) {}
  /// The next command's arguments; empty when the client has gone or the server stops.
  std::vector<std::string> command();
  /// False when the client has gone or the server stops; a script may ignore it and see it at its next command.
  bool send(std::string_view bytes);
  /// Each byte in a packet of its own.
  void send_bytewise(std::string_view bytes);
  /// One byte at a time with a pause after each, until the client goes or the server stops.
  void drip(char byte, int pause_milliseconds);
  /// The server's side of a slow network.
  static void pause(int milliseconds);
  /// Ends the connection with RST.
  void reset();
  /// Stays silent until the client goes or the server stops.
  void hang();
  /// Waits for the first byte of a command, or for the client to go; false when `ends` says so before.
  bool wait_command(const std::function<bool()>& ends);
  /// As hang(), also until `ends` says so.
  void wait_end(const std::function<bool()>& ends);

 private:
  bool wait_readable();
  bool fill();
  std::string line();

  Fd socket_;
  const std::atomic<bool>& stopping_;
  std::string buffer_;
};

/// A server on 127.0.0.1 that plays a script to each connection, and closes it when the script ends: for the faults
/// that a real server does not commit on demand. Safe for concurrent use.
class ScriptedServer {
 public:
  using Script = std::function<void(ScriptedClient&)>;
  explicit ScriptedServer(Script script);
  ~ScriptedServer();
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  [[nodiscard]] std::string url(const std::string& credentials = "") const {
    return "redis://" + credentials + "127.0.0.1:" + std::to_string(port_);
  }
  [[nodiscard]] uint16_t port() const { return port_; }
  [[nodiscard]] int accepted() const { return accepted_.load(); }
  /// From now on who connects is refused by the kernel, or let in again. Connections that are there stay.
  void refuse(bool refused);

 private:
  void accept_all();

  Script script_;
  Fd listener_;
  uint16_t port_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<int> accepted_{0};
  std::vector<std::jthread> clients_;
  std::jthread acceptor_;
};

/// A script that answers every command with the same bytes.
[[nodiscard]] ScriptedServer::Script always_answer(std::string bytes);

}  // namespace inductorfs::testing
