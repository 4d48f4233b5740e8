// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "inductorfs/base/guarded.h"
#include "inductorfs/remote/remote.h"

namespace inductorfs::mount {

/// Looks after the server in the background: learns what it is as soon as it answers, and logs when it goes and comes.
/// Safe for concurrent use.
class RemoteWatch {
 public:
  struct Knowledge {
    std::optional<remote::ServerFacts> facts;
    std::string wrong;  ///< why this server cannot be used; empty while none such has answered
  };

  /// `address` goes into the log: without secrets.
  RemoteWatch(remote::Remote& remote, std::string address) : remote_(remote), address_(std::move(address)) {}
  ~RemoteWatch() { stop(); }
  RemoteWatch(const RemoteWatch&) = delete;
  RemoteWatch& operator=(const RemoteWatch&) = delete;

  void start();
  /// Idempotent.
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
