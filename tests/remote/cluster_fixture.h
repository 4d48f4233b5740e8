// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "inductorfs/base/counters.h"
#include "remote/client/slot_map.h"
#include "remote/formats/keys.h"
#include "remote/formats/piece.h"
#include "remote_fakes.h"
#include "support/lacks.h"
#include "support/redis_cluster.h"

namespace inductorfs::remote {

/// Remotes on a real Redis Cluster, with a prefix for each test. Needs external synchronisation.
class ClusterFixture : public ::testing::Test {
 protected:
  using RedisCluster = inductorfs::testing::RedisCluster;

  void open_on(RedisCluster& on) {
    servers = &on;
    options.url = on.url();
    options.without_progress = Milliseconds(2000);
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    options.prefix = test->name();
    remote = open();
  }
  Remote open() {
    auto opened = open_redis(options, counters);
    if (!opened) throw std::runtime_error(opened.error().to_string());
    return std::move(*opened);
  }
  [[nodiscard]] ScopeKeys keys_of(const ScopeId& id) const { return {options.prefix, id}; }
  [[nodiscard]] uint16_t slot_of_scope(const ScopeId& id) const { return slot_of_key(keys_of(id).meta); }
  [[nodiscard]] uint16_t slot_of_blob(const codec::Digest& digest, uint32_t piece = 0) const {
    return slot_of_key(piece_key(options.prefix, digest, piece));
  }
  /// A scope that this node serves now.
  ScopeId scope_at(size_t node) {
    for (int i = 0;; ++i) {
      const ScopeId id = "scope" + std::to_string(i);
      if (servers->owner(slot_of_scope(id)) == node) return id;
    }
  }
  Result<PublishOutcome> publish(const ScopeId& id, const std::string& path, const std::string& text) {
    return remote.index->publish(group_of(id, {entry_of(path, source.add(text))}), source, soon());
  }
  /// Blobs in the cluster, at least one for each master.
  std::vector<codec::Digest> publish_blobs(const ScopeId& id, int count) {
    std::vector<codec::Digest> digests;
    for (int i = 0; i < count; ++i) {
      const std::string name = "blob " + std::to_string(i);
      digests.push_back(source.add(name));
      const auto outcome = publish(id, name, name);
      EXPECT_TRUE(outcome) << outcome.error().to_string();
    }
    return digests;
  }
  std::optional<ErrorCode> fetch_error(const codec::Digest& digest) {
    FakeSink sink;
    remote.blobs->fetch(std::span(&digest, 1), sink, soon());
    return sink.error_of(digest);
  }
  [[nodiscard]] uint64_t count(const std::string& counter) { return counters.get(counter).get(); }
  template <typename F>
  static bool comes_right(F&& works, Milliseconds within = Milliseconds(30'000)) {
    const Deadline deadline = Deadline::after(within);
    while (!deadline.passed()) {
      if (works()) return true;
      std::this_thread::yield();
    }
    return false;
  }
  template <typename F>
  static Milliseconds time_of(F&& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - start);
  }

  RedisCluster* servers = nullptr;
  RemoteOptions options;
  Counters counters;
  Remote remote;
  FakeSource source;
};

}  // namespace inductorfs::remote
