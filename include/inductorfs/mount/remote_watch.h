// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "inductorfs/base/guarded.h"
#include "inductorfs/remote/remote.h"

namespace inductorfs::mount {

/// Watches the server in the background, by a thread of its own: it learns what the server is as soon as that answers,
/// and logs when the server goes and comes back. The remote must outlive it. Safe for concurrent use.
class RemoteWatch {
 public:
  struct Knowledge {
    std::optional<remote::ServerFacts> facts;
    std::string wrong;  ///< why this server cannot be used; empty as long as no unusable server has answered
  };

  /// `address` goes into the log, so it must be without secrets.
  RemoteWatch(remote::Remote& remote, std::string address) : remote_(remote), address_(std::move(address)) {}
  ~RemoteWatch() { stop(); }
  RemoteWatch(const RemoteWatch&) = delete;
  RemoteWatch& operator=(const RemoteWatch&) = delete;

  void start();
  /// Ends the thread. Idempotent.
  void stop();
  [[nodiscard]] Knowledge knowledge() const;

 private:
  void watch_until(const std::stop_token& stop);
  void learn();
  void tell(bool reachable, const std::string& why);

  remote::Remote& remote_;
  std::string address_;
  Guarded<Knowledge> knowledge_;
  Guarded<bool> stopping_{false};
  std::jthread thread_;
};

}  // namespace inductorfs::mount
