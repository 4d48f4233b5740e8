// SPDX-License-Identifier: Apache-2.0
// What a Redis may lose, by itself or by an operator's hand, under mounts: who sees what of it, and that the hosts
// agree afterwards and can go on publishing.
#include <gtest/gtest.h>

#include <iostream>

#include "support/lacks.h"
#include "vfs/redis_bed.h"

namespace inductorfs::testing {
namespace {

/// A history that begins anew is noticed at the next look at all heads: 22 s with as many scopes as these hosts have
/// (docs/formats.md, "Waiting"), and what a busy host adds.
constexpr std::chrono::seconds kNoticed{40};

enum class Then {
  kStays,
  kGoes,
};

struct Loss {
  const char* name;
  Then there;  ///< a name that the cluster had and that host b has not read
  Then read;   ///< one that b has read
  std::function<void(RedisBed&, const std::string& there)> happens;
};

void PrintTo(const Loss& loss, std::ostream* out) { *out << loss.name; }

/// Keys that end so: ":meta", ":idx", ":log". Blobs have raw bytes at their end.
std::vector<std::string> keys_like(RedisBed& bed, const std::string& pattern) {
  std::vector<std::string> keys;
  for (auto& key : bed.operate({"KEYS", pattern}).items) keys.push_back(key.text);
  EXPECT_FALSE(keys.empty()) << pattern;
  return keys;
}

/// Whether a host that mounts afterwards shows the names that the cluster had.
enum class Fresh { kMayNot, kShows };

auto evicting(const std::vector<std::string>& patterns, Fresh fresh = Fresh::kMayNot) {
  return [=](RedisBed& bed, const std::string& there) {
    for (const auto& pattern : patterns) {
      for (const auto& key : keys_like(bed, pattern)) bed.operate({"UNLINK", key});
    }
    if (fresh == Fresh::kMayNot) return;
    const auto other = bed.mount_another();
    EXPECT_TRUE(eventually([&] { return other->read(there).value_or("absent") == "not read yet"; }));
  };
}

/// Its writer publishes what the cluster has lost.
void comes_again(RedisBed& bed, const std::string& lost, const std::string& text) {
  const auto other = bed.mount_another();
  EXPECT_TRUE(eventually([&] { return other->read(lost).value_or("absent") == text; }));
}

std::vector<Loss> losses() {
  return {
      {"FLUSHALL", Then::kStays, Then::kStays,
       [](RedisBed& bed, const std::string& there) {
         const uint64_t resets = bed.b->count("catalog.resets");
         bed.operate({"FLUSHALL"});
         EXPECT_TRUE(eventually([&] { return bed.b->count("catalog.resets") > resets; }));
         comes_again(bed, there, "not read yet");
       }},
      {"restart with nothing", Then::kStays, Then::kStays,
       [](RedisBed& bed, const std::string& there) {
         const uint64_t resets = bed.b->count("catalog.resets");
         bed.restart_server();
         EXPECT_TRUE(eventually([&] { return bed.b->count("catalog.resets") > resets; }));
         comes_again(bed, there, "not read yet");
       }},
      {"restart with an older data set", Then::kStays, Then::kStays,
       [](RedisBed& bed, const std::string&) {
         bed.operate({"SAVE"});
         const std::string lost = bed.publish(*bed.a, "published after the snapshot");
         EXPECT_TRUE(bed.a->sync());
         EXPECT_TRUE(bed.b->wait_for_entry(lost));
         const uint64_t resets = bed.b->count("catalog.resets");
         bed.restart_server();
         EXPECT_TRUE(eventually([&] { return bed.b->count("catalog.resets") > resets; }));
         EXPECT_EQ(bed.a->read(lost).value_or("absent"), "published after the snapshot") << "its writer keeps it";
         comes_again(bed, lost, "published after the snapshot");
       }},
      {"failover that loses the tail", Then::kStays, Then::kStays,
       [](RedisBed& bed, const std::string&) {
         bed.operate({"SAVE"});
         const std::string lost = bed.publish(*bed.a, "in the lost tail");
         EXPECT_TRUE(bed.a->sync());
         EXPECT_TRUE(bed.b->wait_for_entry(lost));
         bed.proxy->set(FaultProxy::Mode::kRefused);  // b misses the moment between the two histories
         const uint64_t resets = bed.b->count("catalog.resets");
         bed.restart_server();
         const std::string other = bed.publish(*bed.a, "the same generation of another history");
         EXPECT_TRUE(bed.a->sync());
         bed.proxy->set(FaultProxy::Mode::kNone);
         EXPECT_TRUE(bed.b->wait_for_entry(other));
         EXPECT_GT(bed.b->count("catalog.resets"), resets)
             << "an equal generation with another nonce is another history";
         comes_again(bed, lost, "in the lost tail");
       }},
      // The index is the authority, also for who has never seen what named its history.
      {"eviction of meta", Then::kStays, Then::kStays, evicting({"*:meta"}, Fresh::kShows)},
      {"eviction of meta and log", Then::kStays, Then::kStays, evicting({"*:meta", "*:log"}, Fresh::kShows)},
      // Who follows the scope goes on: the history is whole, and so are the blobs. A new mount sees what comes after.
      {"eviction of the index", Then::kStays, Then::kStays, evicting({"*:idx"})},
      {"eviction of the log", Then::kStays, Then::kStays, evicting({"*:log"}, Fresh::kShows)},
      {"eviction of all blobs", Then::kGoes, Then::kStays, evicting({"ifs1:b:*"})},
      {"eviction of the contests' counts", Then::kStays, Then::kStays,
       [](RedisBed& bed, const std::string&) {
         for (const auto& key : keys_like(bed, "*:meta")) {
           const std::string base = key.substr(0, key.size() - 4);
           bed.operate({"UNLINK", base + "cnt", base + "own", base + "about", "ifs1:scopes"});
         }
       }},
      {"a log trimmed beyond the reader", Then::kStays, Then::kStays,
       [](RedisBed& bed, const std::string&) {
         bed.proxy->set(FaultProxy::Mode::kRefused);
         std::string last;
         for (int i = 0; i < 5; ++i) last = bed.publish(*bed.a, "while the other is away " + std::to_string(i));
         EXPECT_TRUE(bed.a->sync());
         for (const auto& key : keys_like(bed, "*:log")) bed.operate({"XTRIM", key, "MAXLEN", "1"});
         bed.proxy->set(FaultProxy::Mode::kNone);
         EXPECT_TRUE(bed.b->wait_for_entry(last));
         EXPECT_TRUE(bed.b->wait_for_entry(RedisBed::path_of("while the other is away 0")));
       }},
      {"the blob's key is somebody's list", Then::kGoes, Then::kStays,
       [](RedisBed& bed, const std::string&) {
         for (const auto& key : keys_like(bed, "ifs1:b:*")) {
           bed.operate({"UNLINK", key});
           bed.operate({"LPUSH", key, "x"});
         }
       }},
      // A server whose clock jumps ahead of a lifetime expires all that has one, and thinks every announcement old; one
      // whose clock falls back afterwards holds announcements of the future. Blobs and announcements are all that has
      // to do with its clock: the log's ids are ours.
      {"the server's clock jumps ahead", Then::kGoes, Then::kStays,
       [](RedisBed& bed, const std::string&) {
         for (const char* pattern : {"ifs1:b:*", "*:about"}) {
           for (const auto& key : bed.operate({"KEYS", pattern}).items) bed.operate({"PEXPIREAT", key.text, "1"});
         }
         bed.operate({"ZREMRANGEBYSCORE", "ifs1:scopes", "-inf", "+inf"});
       }},
      {"the server's clock falls back", Then::kStays, Then::kStays,
       [](RedisBed& bed, const std::string&) {
         for (const auto& item : bed.operate({"ZRANGE", "ifs1:scopes", "0", "-1"}).items) {
           bed.operate({"ZADD", "ifs1:scopes", "9999999999999", item.text});
         }
         for (const auto& key : keys_like(bed, "ifs1:b:*")) bed.operate({"PEXPIREAT", key, "9999999999999"});
       }},
  };
}

class RedisLosses : public ::testing::TestWithParam<Loss> {
 protected:
  void SetUp() override {
    if (!RedisServer::available()) INDUCTORFS_LACKS("redis-server");
  }
};

TEST_P(RedisLosses, AreAMissAtMostAndTheHostsAgreeAfterwards) {
  const Loss& loss = GetParam();
  RedisBed bed({});
  const std::string there = bed.publish(*bed.a, "not read yet");
  const std::string read = bed.publish(*bed.a, "read before");
  ASSERT_TRUE(bed.a->sync());
  const std::string own = bed.publish(*bed.b, "its own");
  ASSERT_TRUE(bed.b->sync());
  ASSERT_TRUE(bed.b->wait_for_entry(there) && bed.b->wait_for_entry(read) && bed.a->wait_for_entry(own));
  ASSERT_EQ(bed.b->read(read).value_or("absent"), "read before");
  const auto open = bed.b->look_up(read);  // what a job has open or mapped
  ASSERT_TRUE(open);

  loss.happens(bed, there);

  EXPECT_EQ(bed.b->read(own).value_or("absent"), "its own") << "what this host wrote does not go";
  EXPECT_EQ(bed.a->read(there).value_or("absent"), "not read yet");
  const auto is = [&](const std::string& path, Then then) {
    return eventually([&] { return bed.b->exists(path) == (then == Then::kStays); });
  };
  EXPECT_TRUE(is(there, loss.there));
  EXPECT_TRUE(is(read, loss.read));
  std::string bytes(100, '\0');
  const auto got = bed.b->data().read(open->node, bytes.data(), bytes.size(), 0);
  ASSERT_TRUE(got) << got.error().to_string();
  EXPECT_EQ(bytes.substr(0, *got), "read before") << "an open file stays what it is";

  const std::string after = bed.publish(*bed.a, "published afterwards");
  ASSERT_TRUE(bed.a->sync());
  EXPECT_TRUE(eventually([&] { return bed.b->read(after).value_or("absent") == "published afterwards"; }, kNoticed));
  const std::string back = bed.publish(*bed.b, "and the other way");
  ASSERT_TRUE(bed.b->sync());
  EXPECT_TRUE(eventually([&] { return bed.a->read(back).value_or("absent") == "and the other way"; }));
  const auto same = [&](const std::string& path) {
    return bed.a->catalog->find(path).has_value() == bed.b->catalog->find(path).has_value();
  };
  EXPECT_TRUE(eventually([&] { return same(there) && same(read) && same(own); }));
}

INSTANTIATE_TEST_SUITE_P(All, RedisLosses, ::testing::ValuesIn(losses()));

}  // namespace
}  // namespace inductorfs::testing
