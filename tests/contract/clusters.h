// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "inductorfs/remote/remote.h"
#include "local_remote.h"
#include "support/redis_server.h"

/// The clusters that the contract is run over.
namespace inductorfs::remote {

using inductorfs::testing::RedisServer;

/// Where handles to one cluster come from.
class Cluster {
 public:
  virtual ~Cluster() = default;
  virtual std::unique_ptr<Remote> open() = 0;
};

class InMemory final : public Cluster {
 public:
  std::unique_ptr<Remote> open() override { return open_memory(cluster_); }

 private:
  std::shared_ptr<MemoryCluster> cluster_ = make_memory_cluster();
};

class OnRedis final : public Cluster {
 public:
  std::unique_ptr<Remote> open() override {
    static RedisServer server;  // one for the whole suite; a prefix for each test
    RemoteOptions options;
    options.url = server.url();
    options.prefix = prefix_;
    options.without_progress = Milliseconds(5000);  // the machine may be busy; time limits have tests of their own
    auto remote = open_redis(options, counters_);
    if (!remote) throw std::runtime_error(remote.error().to_string());
    return std::move(*remote);
  }

 private:
  static std::string next_prefix() {
    static int number = 0;
    return "test" + std::to_string(++number);
  }
  const std::string prefix_ = next_prefix();
  Counters counters_;
};

/// A mount without --remote: its one handle is the whole cluster.
class OnThisHost final : public Cluster {
 public:
  std::unique_ptr<Remote> open() override { return daemon::make_local_remote(); }
};

inline ScopeInformation information(const std::string& text) {
  return {codec::digest_of(text).to_hex(), "triton_kernel", text};
}

using MakeCluster = std::unique_ptr<Cluster> (*)();
struct Kind {
  const char* name;
  MakeCluster make;
};

}  // namespace inductorfs::remote
