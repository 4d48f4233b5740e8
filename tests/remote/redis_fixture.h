// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "inductorfs/base/counters.h"
#include "inductorfs/redis/connection.h"
#include "remote/formats/keys.h"
#include "remote/formats/piece.h"
#include "remote_fakes.h"
#include "support/lacks.h"
#include "support/redis_server.h"

namespace inductorfs::remote {

/// A redis-server of its own and a remote on it; `run` does behind the remote's back what an operator, an eviction or
/// a failover would do. Needs external synchronisation.
class RedisFixture : public ::testing::Test {
 protected:
  using RedisServer = inductorfs::testing::RedisServer;

  void SetUp() override {
    if (!RedisServer::available()) INDUCTORFS_LACKS("redis-server");
    start({});
  }
  void start(RedisServer::Options server_options) {
    server = std::make_unique<RedisServer>(std::move(server_options));
    options.url = server->url();
    options.without_progress = Milliseconds(2000);
    reopen();
  }
  void reopen() {
    auto opened = open_redis(options, counters);
    ASSERT_TRUE(opened) << opened.error().to_string();
    remote = std::move(*opened);
  }
  redis::Reply run(const redis::Command& command) {
    auto endpoint = redis::parse_url(server->url());
    auto connection = redis::Connection::open(*endpoint, soon());
    EXPECT_TRUE(connection) << connection.error().to_string();
    if (!connection) return {};
    auto reply = (*connection)->call(command, {Milliseconds(10000), Milliseconds(10000)});
    EXPECT_TRUE(reply) << reply.error().to_string();
    if (!reply) return {};
    EXPECT_FALSE(reply->is_error()) << reply->text;
    return std::move(*reply);
  }
  codec::Entry entry(const std::string& path, const std::string& text) { return entry_of(path, source.add(text)); }
  void publish(std::vector<codec::Entry> entries) {
    const auto outcome = remote.index->publish(group_of(scope, std::move(entries)), source, soon());
    ASSERT_TRUE(outcome) << outcome.error().to_string();
    ASSERT_EQ(*outcome, PublishOutcome::kPublished);
  }
  std::optional<ErrorCode> fetch_error(const codec::Digest& digest, Deadline deadline) {
    FakeSink sink;
    remote.blobs->fetch(std::span(&digest, 1), sink, deadline);
    return sink.error_of(digest);
  }
  /// As a newer release may write it: another version, and the digest elsewhere. Behind the version stand `bytes`,
  /// which this release must not take for a digest. Returns the value.
  std::string put_newer(const std::string& path, const std::string& text,
                        const std::string& bytes = std::string(40, '\x5a')) {
    std::string value = codec::encode_entry(entry(path, text));
    ++value[0];
    value.insert(1, bytes);
    run({"HSET", keys.index, path, value});
    return value;
  }
  [[nodiscard]] std::string key_of(const codec::Digest& digest, uint32_t piece = 0) const {
    return piece_key(options.prefix, digest, piece);
  }
  [[nodiscard]] uint64_t count(const std::string& counter) { return counters.get(counter).get(); }

  const ScopeId scope = "5c0be";
  const ScopeKeys keys{"ifs1", "5c0be"};
  RemoteOptions options;
  Counters counters;
  std::unique_ptr<RedisServer> server;
  Remote remote;
  FakeSource source;
};

}  // namespace inductorfs::remote
