// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "inductorfs/redis/connection.h"
#include "support/fault_proxy.h"
#include "support/redis_server.h"
#include "vfs/host.h"

namespace inductorfs::testing {

/// A real redis-server, a host `a` that talks to it and a host `b` that talks to it through a proxy that can fail. What
/// jobs do on `b` is under test. Needs external synchronisation.
class RedisBed {
 public:
  explicit RedisBed(RedisServer::Options options);

  /// An operator's command, on a connection that stays; an error reply fails the test.
  redis::Reply operate(const redis::Command& command);
  /// As another host's program would write it; returns the path.
  std::string publish(Host& host, const std::string& text);
  static std::string path_of(const std::string& text) { return in_code_directory(code_name(text) + ".py"); }
  /// In the directory of `path`, which the job knows already. Says how long the answer took.
  struct Answer {
    bool found = false;
    bool kept = false;  ///< the kernel may keep the absence
    Milliseconds took{};
  };
  static Answer look_up(Host& host, const std::string& path);
  void restart_server();
  /// A host that knows nothing of the cluster yet.
  std::unique_ptr<Host> mount_another();

  RedisServer::Options options;
  Counters counters;  ///< of b's remote
  Counters counters_of_a;
  std::unique_ptr<RedisServer> server;
  std::unique_ptr<FaultProxy> proxy;
  std::unique_ptr<Host> a;
  std::unique_ptr<Host> b;

 private:
  HostOptions host_options(const std::string& url, Counters& counted);
  void connect_operator();

  std::unique_ptr<redis::Connection> operator_;
};

}  // namespace inductorfs::testing
