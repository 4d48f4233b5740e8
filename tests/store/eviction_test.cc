// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <algorithm>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "inductorfs/base/guarded.h"
#include "store_fixture.h"

namespace inductorfs::store {
namespace {

using codec::digest_of;

class Eviction : public StoreTest {
 protected:
  /// A blob of 100 bytes.
  static std::string blob(int number) {
    std::string bytes = std::to_string(number);
    bytes.resize(100, '.');
    return bytes;
  }
  [[nodiscard]] bool has(int number) const { return std::filesystem::exists(file_of(digest_of(blob(number)))); }
};

TEST_F(Eviction, LeastRecentlyUsedGoesFirst) {
  open(500);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(store_->put(blob(i)));
  ASSERT_TRUE(store_->find(digest_of(blob(0))));
  ASSERT_TRUE(store_->open_blob(digest_of(blob(1))));
  ASSERT_TRUE(store_->put(blob(2)));
  ASSERT_TRUE(store_->put(blob(5)));
  EXPECT_FALSE(has(3));
  for (const int kept : {0, 1, 2, 4, 5}) EXPECT_TRUE(has(kept)) << kept;
  EXPECT_EQ(store_->usage().evicted, 1U);
  EXPECT_EQ(counter("store.evicted"), 1U);
  EXPECT_EQ(store_->usage().bytes, 500U);
  EXPECT_EQ(files_in(directory() + "/tmp"), 0U);
}

TEST_F(Eviction, AsksTheGuardAndKeepsWhatItRefuses) {
  open(500);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(store_->put(blob(i)));
  const std::set<codec::Digest> needed{digest_of(blob(0)), digest_of(blob(1)), digest_of(blob(3))};
  store_->set_eviction_guard([&](const codec::Digest& digest) { return !needed.contains(digest); });
  ASSERT_TRUE(store_->put(blob(5)));
  ASSERT_TRUE(store_->put(blob(6)));
  for (const int kept : {0, 1, 3}) EXPECT_TRUE(has(kept)) << kept;
  EXPECT_FALSE(has(2));
  EXPECT_FALSE(has(4));
  EXPECT_GE(counter("store.evict_refused"), 2U);
}

TEST_F(Eviction, NoSpaceWithARemedyWhenEverythingIsNeeded) {
  open(500);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(store_->put(blob(i)));
  store_->set_eviction_guard([](const codec::Digest&) { return false; });
  const auto put = store_->put(blob(5));
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code(), ErrorCode::kNoSpace);
  EXPECT_NE(put.error().what().find("raise the size limit"), std::string::npos) << put.error().what();
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, root_ / "private", blob(6)));
  EXPECT_EQ(store_->adopt(AT_FDCWD, root_ / "private", digest_of(blob(6))).error().code(), ErrorCode::kNoSpace);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(has(i)) << i;
  store_->set_eviction_guard({});
  EXPECT_TRUE(store_->put(blob(5))) << "a failed attempt has given its reservation back";
}

TEST_F(Eviction, GuardMayUseTheStore) {
  open(300);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(store_->put(blob(i)));
  store_->set_eviction_guard([&](const codec::Digest&) { return store_->usage().blobs == 3; });
  EXPECT_TRUE(store_->put(blob(3))) << "a lock held across the guard would never return";
}

TEST_F(Eviction, ABlobUsedWhileTheGuardIsAskedStays) {
  open(300);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(store_->put(blob(i)));
  store_->set_eviction_guard([&](const codec::Digest& digest) {
    EXPECT_TRUE(digest != digest_of(blob(0)) || store_->find(digest));
    return true;
  });
  ASSERT_TRUE(store_->put(blob(3)));
  EXPECT_TRUE(has(0));
  EXPECT_FALSE(has(1));
}

TEST_F(Eviction, BlobOverTheWholeLimitIsTooLarge) {
  open(300);
  ASSERT_TRUE(store_->put(blob(0)));
  const auto put = store_->put(std::string(301, 'x'));
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code(), ErrorCode::kTooLarge);
  EXPECT_EQ(store_->create(301).error().code(), ErrorCode::kTooLarge);
  EXPECT_TRUE(has(0)) << "nothing is evicted in vain";
  EXPECT_TRUE(store_->put(std::string(300, 'x')));
}

TEST_F(Eviction, WriterWithoutAHintIsHeldToTheLimitToo) {
  open(300);
  ASSERT_TRUE(store_->put(blob(0)));
  auto writer = store_->create(0);
  ASSERT_TRUE(writer);
  ASSERT_TRUE((*writer)->append(std::string(250, 'x')));
  EXPECT_FALSE(has(0)) << "it had to go";
  EXPECT_FALSE((*writer)->append(std::string(100, 'x')));
  EXPECT_FALSE((*writer)->append("x")) << "after an error it has ended";
  EXPECT_TRUE(store_->put(std::string(300, 'y'))) << "its room has been given back";
}

TEST_F(Eviction, LoweredLimitTakesEffect) {
  open(1000);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(store_->put(blob(i)));
  open(300);
  ASSERT_TRUE(store_->put(blob(10)));
  EXPECT_LE(store_->usage().bytes, 300U);
  EXPECT_TRUE(has(10));
}

TEST_F(Eviction, DescriptorStaysReadable) {
  open(300);
  ASSERT_TRUE(store_->put(blob(0)));
  const auto file = store_->open_blob(digest_of(blob(0)));
  ASSERT_TRUE(file);
  for (int i = 1; i < 5; ++i) ASSERT_TRUE(store_->put(blob(i)));
  EXPECT_FALSE(has(0));
  EXPECT_EQ(read_all(*file), blob(0));
}

TEST_F(Eviction, OrderOfUseSurvivesARestart) {
  open(500);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(store_->put(blob(i)));
    clock_.advance(std::chrono::minutes(1));
  }
  clock_.set_wall(system_clock().wall_now());  // new files have the real time
  clock_.advance(std::chrono::hours(2));
  ASSERT_TRUE(store_->find(digest_of(blob(0))));
  open(500);
  ASSERT_TRUE(store_->put(blob(5)));
  EXPECT_TRUE(has(0)) << "used two hours later than the others";
}

TEST_F(Eviction, AUseIsSavedAtMostOnceAnHourAndTheMtimeStays) {
  clock_.set_wall(system_clock().wall_now());
  open(500);
  ASSERT_TRUE(store_->put(blob(0)));
  const auto times = [&] {
    struct stat info {};
    EXPECT_EQ(::stat(file_of(digest_of(blob(0))).c_str(), &info), 0);
    return std::pair(info.st_atim.tv_sec, info.st_mtim.tv_sec);
  };
  const auto first = times();
  clock_.advance(std::chrono::minutes(59));
  ASSERT_TRUE(store_->find(digest_of(blob(0))));
  EXPECT_EQ(times(), first);
  clock_.advance(std::chrono::minutes(2));
  ASSERT_TRUE(store_->find(digest_of(blob(0))));
  EXPECT_GT(times().first, first.first + 3600);
  EXPECT_EQ(times().second, first.second);
}

TEST_F(Eviction, WhatTheGuardRefusesIsThereForConcurrentReaders) {
  open(2000);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(store_->put(blob(i)));
  std::set<codec::Digest> needed;
  for (int i = 0; i < 5; ++i) needed.insert(digest_of(blob(i)));
  store_->set_eviction_guard([&](const codec::Digest& digest) { return !needed.contains(digest); });
  std::atomic<int> missing{0};
  {
    std::jthread writer([&] {
      for (int i = 100; i < 600; ++i) (void)store_->put(blob(i));  // what is asserted is what stays
    });
    for (int i = 0; i < 2000; ++i) {
      if (!store_->open_blob(digest_of(blob(i % 5)))) ++missing;
    }
  }
  EXPECT_EQ(missing, 0);
  EXPECT_GT(counter("store.evicted"), 100U);
}

}  // namespace
}  // namespace inductorfs::store
