// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "inductorfs/redis/connection.h"
#include "inductorfs/remote/local_remote.h"
#include "inductorfs/remote/remote.h"
#include "remote/client/slot_map.h"
#include "remote/formats/piece.h"
#include "remote/remote_fakes.h"
#include "support/lacks.h"
#include "support/redis_cluster.h"
#include "support/redis_server.h"

/// The clusters that the contract is run over.
namespace inductorfs::remote {

using inductorfs::testing::RedisServer;

/// Where handles to one cluster come from.
class Cluster {
 public:
  virtual ~Cluster() = default;
  virtual Remote open() = 0;
  /// As a server under memory pressure does.
  virtual void evict(const codec::Digest& digest) = 0;
};

class InMemory final : public Cluster {
 public:
  Remote open() override { return open_memory(cluster_); }
  void evict(const codec::Digest& digest) override { evict_blob(*cluster_, digest); }

 private:
  std::shared_ptr<MemoryCluster> cluster_ = make_memory_cluster();
};

class OnRedis final : public Cluster {
 public:
  Remote open() override {
    RemoteOptions options;
    options.url = server().url();
    options.prefix = prefix_;
    options.without_progress = Milliseconds(5000);  // the machine may be busy; time limits have tests of their own
    auto remote = open_redis(options, counters_);
    if (!remote) throw std::runtime_error(remote.error().to_string());
    return std::move(*remote);
  }
  void evict(const codec::Digest& digest) override {
    const Deadline deadline = Deadline::after(Milliseconds(20000));
    auto connection = redis::Connection::open(*redis::parse_url(server().url()), deadline);
    if (!connection) throw std::runtime_error(connection.error().to_string());
    const std::string key = piece_key(prefix_, digest, 0);
    auto reply = (*connection)->call({"DEL", key}, {Milliseconds(10000), Milliseconds(10000)});
    if (!reply || reply->integer != 1) throw std::runtime_error("there was no such blob");
  }

 private:
  /// One for the whole suite; a prefix for each test.
  static RedisServer& server() {
    static RedisServer running;
    return running;
  }
  static std::string next_prefix() {
    static int number = 0;
    return "test" + std::to_string(++number);
  }
  const std::string prefix_ = next_prefix();
  Counters counters_;
};

class OnRedisCluster final : public Cluster {
 public:
  Remote open() override {
    RemoteOptions options;
    options.url = servers().url();
    options.prefix = prefix_;
    options.without_progress = Milliseconds(5000);
    auto remote = open_redis(options, counters_);
    if (!remote) throw std::runtime_error(remote.error().to_string());
    return std::move(*remote);
  }
  void evict(const codec::Digest& digest) override {
    const std::string key = piece_key(prefix_, digest, 0);
    if (servers().at_slot(slot_of_key(key), {"DEL", key}).integer != 1) throw std::runtime_error("no such blob");
  }

 private:
  static inductorfs::testing::RedisCluster& servers() {
    static inductorfs::testing::RedisCluster running;
    return running;
  }
  static std::string next_prefix() {
    static int number = 0;
    return "cluster" + std::to_string(++number);
  }
  const std::string prefix_ = next_prefix();
  Counters counters_;
};

/// A mount without --remote: its one handle is the whole cluster.
class OnThisHost final : public Cluster {
 public:
  Remote open() override { return remote::make_local_remote(); }
  void evict(const codec::Digest&) override {}  // it has no blob
};

inline ScopeInformation information(const std::string& text) {
  return {codec::digest_of(text).to_hex(), "triton_kernel", text};
}

using MakeCluster = std::unique_ptr<Cluster> (*)();
struct Kind {
  const char* name;
  MakeCluster make;
};

inline const Kind kInMemory{"Memory", [] { return std::unique_ptr<Cluster>(std::make_unique<InMemory>()); }};
inline const Kind kOnRedis{"Redis", [] { return std::unique_ptr<Cluster>(std::make_unique<OnRedis>()); }};
inline const Kind kOnRedisCluster{"RedisCluster",
                                  [] { return std::unique_ptr<Cluster>(std::make_unique<OnRedisCluster>()); }};
inline const Kind kOnThisHost{"Local", [] { return std::unique_ptr<Cluster>(std::make_unique<OnThisHost>()); }};

/// The clusters that hosts share.
inline auto shared_clusters() { return ::testing::Values(kInMemory, kOnRedis, kOnRedisCluster); }

inline std::string name_of_kind(const ::testing::TestParamInfo<Kind>& instance) { return instance.param.name; }

/// A cluster of the kind, and two handles to it.
class OverClusters : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (std::string_view(GetParam().name).starts_with("Redis") && !RedisServer::available())
      INDUCTORFS_LACKS("redis-server");
    cluster = GetParam().make();
    remote = cluster->open();
    other = cluster->open();
  }

  std::unique_ptr<Cluster> cluster;
  Remote remote;
  Remote other;
};

/// A host that publishes, and another one.
class OverPublishers : public OverClusters {
 protected:
  PublishOutcome publish(const PublishGroup& group) {
    auto outcome = remote.index->publish(group, source, soon());
    EXPECT_TRUE(outcome) << outcome.error().to_string();
    return outcome.value_or(PublishOutcome::kConflict);
  }
  codec::Entry entry(const std::string& path, const std::string& text) { return entry_of(path, source.add(text)); }
  FakeSink fetch(std::vector<codec::Digest> digests) {
    FakeSink sink;
    other.blobs->fetch(digests, sink, soon());
    return sink;
  }

  const ScopeId scope = "5c0be";
  FakeSource source;
};

}  // namespace inductorfs::remote
