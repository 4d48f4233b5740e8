// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/config/frozen.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "inductorfs/config/json.h"
#include "mount_words.h"
#include "support/temporary_directory.h"

namespace inductorfs::cli {
namespace {

config::Settings settings_from(std::vector<std::string> words) {
  const std::string mountpoint = words.front();
  words.erase(words.begin());
  const Result<config::Settings> settings = testing::MountWords(words).settings(mountpoint);
  EXPECT_TRUE(settings.has_value()) << settings.error().what();
  return *settings;
}

TEST(Frozen, SettingsComeBackAsTheyWere) {
  const config::Settings before = settings_from({"/m", "--remote", "redis://h", "--threads", "3", "--store", "/s",
                                                 "--also", "a=/b", "--environment", "TRITON_PTXAS_PATH=/x",
                                                 "--no-allow-other", "--quiet-time", "77", "--hang-timeout", "4"});
  const Result<config::Frozen> after = config::thaw(config::freeze(before, {5, 6, 01777}));
  ASSERT_TRUE(after.has_value()) << after.error().what();
  EXPECT_EQ(after->settings.mountpoint, "/m");
  EXPECT_EQ(after->settings.remote, "redis://h");
  EXPECT_EQ(after->settings.threads, 3U);
  EXPECT_EQ(after->settings.store, "/s");
  EXPECT_EQ(after->settings.also, before.also);
  EXPECT_EQ(after->settings.environment, before.environment);
  EXPECT_EQ(after->settings.allow_other, false);
  EXPECT_EQ(after->settings.quiet_time, Milliseconds(77));
  EXPECT_EQ(after->settings.hang_timeout, std::chrono::seconds(4));
  EXPECT_EQ(after->ownership.uid, 5U);
  EXPECT_EQ(after->ownership.gid, 6U);
  EXPECT_EQ(after->ownership.mode, 01777U);
}

TEST(Frozen, AMountKeepsTheUserOfItsWorkers) {
  config::Settings before = settings_from({"/m", "--store", "/s"});
  before.worker = config::WorkerUser{7, 8, {9, 10}};
  before.no_worker_user = "it stays root";
  const std::string bytes = config::freeze(before, {});
  const Result<config::Frozen> after = config::thaw(bytes);
  ASSERT_TRUE(after.has_value()) << after.error().what();
  ASSERT_TRUE(after->settings.worker);
  EXPECT_EQ(after->settings.worker->uid, 7U);
  EXPECT_EQ(after->settings.worker->gid, 8U);
  EXPECT_EQ(after->settings.worker->groups, (std::vector<gid_t>{9, 10}));
  EXPECT_EQ(after->settings.no_worker_user, "it stays root");
  const config::Json whole = config::Json::from_cbor(bytes);
  for (const auto& member : whole.items()) {
    config::Json without = whole;
    without.erase(member.key());
    const std::vector<uint8_t> cut = config::Json::to_cbor(without);
    EXPECT_FALSE(config::thaw({reinterpret_cast<const char*>(cut.data()), cut.size()}).has_value()) << member.key();
  }
}

/// A new mount gets no such store, and a running one is upgraded all the same.
TEST(Frozen, ASmallStoreStays) {
  config::Settings before = settings_from({"/m"});
  before.given.push_back({{{"store-limit", {"8M"}}}, "command line", "/"});
  const Result<config::Frozen> after = config::thaw(config::freeze(before, {}));
  ASSERT_TRUE(after.has_value()) << after.error().what();
  EXPECT_EQ(after->settings.store_limit, uint64_t{8} << 20);
}

TEST(Frozen, AMountKeepsItsPolicy) {
  config::Settings before = settings_from({"/m", "--store", "/s"});
  ASSERT_EQ(before.writers, config::WritersPolicy::kLearned);
  Result<config::Frozen> after = config::thaw(config::freeze(before, {}));
  ASSERT_TRUE(after.has_value()) << after.error().what();
  EXPECT_EQ(after->settings.writers, config::WritersPolicy::kLearned);
  before = settings_from({"/m", "--store", "/s", "--python", "/p"});
  after = config::thaw(config::freeze(before, {}));
  ASSERT_TRUE(after.has_value()) << after.error().what();
  EXPECT_EQ(after->settings.writers, config::WritersPolicy::kMatching);
  // One without a policy is not of this version: none is guessed.
  const std::string frozen = config::freeze(settings_from({"/m", "--store", "/s"}), {});
  config::Json earlier = config::Json::from_cbor(frozen);
  ASSERT_EQ(earlier.erase("writers"), 1U);
  const std::vector<uint8_t> bytes = config::Json::to_cbor(earlier);
  after = config::thaw({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  ASSERT_FALSE(after.has_value());
  EXPECT_NE(after.error().what().find("settings of another version"), std::string::npos) << after.error().what();
}

TEST(Frozen, AFileOfOptionsIsNotReadAgain) {
  const testing::TemporaryDirectory directory;
  const std::string file = directory / "c.toml";
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, file, R"(
prefix = "other"
store = "relative"
[families.mine]
pattern = "mine/**"
facets = ["torch", "cpu"]
[families.aotautograd]
shared = false
)")
                  .has_value());
  const config::Settings before = settings_from({"/m", "--config", file.c_str(), "--threads", "2"});
  const std::string frozen = config::freeze(before, {});
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, file, "broken = [").has_value());
  const Result<config::Frozen> after = config::thaw(frozen);
  ASSERT_TRUE(after.has_value()) << after.error().what();
  EXPECT_EQ(after->settings.prefix, "other");
  EXPECT_EQ(after->settings.store, directory / "relative");
  EXPECT_EQ(after->settings.threads, 2U);
  ASSERT_EQ(after->settings.families.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(after->settings.families[i].family, before.families[i].family);
    EXPECT_EQ(after->settings.families[i].pattern, before.families[i].pattern);
    EXPECT_EQ(after->settings.families[i].shared, before.families[i].shared);
    EXPECT_EQ(after->settings.families[i].facets, before.families[i].facets);
  }
}

TEST(Frozen, PathsMayHaveAnyByte) {
  const config::Settings before = settings_from({"/m\xff\n\x01", "--store", "/s\xfe"});
  const Result<config::Frozen> after = config::thaw(config::freeze(before, {}));
  ASSERT_TRUE(after.has_value()) << after.error().what();
  EXPECT_EQ(after->settings.mountpoint, "/m\xff\n\x01");
  EXPECT_EQ(after->settings.store, "/s\xfe");
}

TEST(Frozen, WhatIsNoneIsRefused) {
  const std::string good = config::freeze(settings_from({"/m"}), {});
  for (size_t size = 0; size < good.size(); size += 7)
    EXPECT_FALSE(config::thaw(good.substr(0, size)).has_value()) << size;
  EXPECT_FALSE(config::thaw("nonsense").has_value());
  config::Json unknown = config::Json::from_cbor(good);
  unknown["given"][0]["values"]["new-option"] = {"1"};
  const std::vector<uint8_t> bytes = config::Json::to_cbor(unknown);
  const Result<config::Frozen> newer = config::thaw({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  ASSERT_FALSE(newer.has_value());
  EXPECT_NE(newer.error().what().find("new-option"), std::string::npos);
}

TEST(Frozen, MemoryIsReadBack) {
  const Result<Fd> memory = config::to_memory("test", "some bytes");
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(config::from_memory(memory->get()).value_or(""), "some bytes");
  EXPECT_FALSE(config::from_memory(-1).has_value());
}

}  // namespace
}  // namespace inductorfs::cli
