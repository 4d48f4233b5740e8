// SPDX-License-Identifier: Apache-2.0
#include "store/index.h"

#include <gtest/gtest.h>

namespace inductorfs::store {
namespace {

using codec::digest_of;

TEST(BlobIndex, OldestIsTheOneLeastRecentlyUsed) {
  BlobIndex index(1000);
  EXPECT_FALSE(index.oldest());
  for (const char* name : {"a", "b", "c"}) index.insert(digest_of(name), 10, 0, false);
  EXPECT_EQ(index.oldest()->digest, digest_of("a"));
  index.touch(*index.find(digest_of("a")));
  EXPECT_EQ(index.oldest()->digest, digest_of("b"));
  index.erase(digest_of("b"));
  EXPECT_EQ(index.oldest()->digest, digest_of("c"));
}

TEST(BlobIndex, WhatWasNeverReadGoesFirstWhileItIsMuch) {
  BlobIndex index(1000);
  for (const char* name : {"a", "b", "c", "d"}) index.insert(digest_of(name), 10, 0, false);
  for (const char* name : {"a", "b"}) index.mark_read(*index.find(digest_of(name)));
  index.touch(*index.find(digest_of("c")));
  EXPECT_EQ(index.oldest()->digest, digest_of("d"));
  EXPECT_EQ(index.oldest(1)->digest, digest_of("d"));
  EXPECT_EQ(index.oldest(2)->digest, digest_of("a")) << "both were refused";
  EXPECT_FALSE(index.oldest(2, false));
  index.erase(digest_of("d"));
  EXPECT_EQ(index.oldest()->digest, digest_of("c")) << "a third of the bytes";
  index.insert(digest_of("e"), 10, 0, false);
  index.mark_read(*index.find(digest_of("e")));
  EXPECT_EQ(index.oldest()->digest, digest_of("a")) << "a quarter of the bytes, and the oldest";
  index.mark_read(*index.find(digest_of("a")));
  index.mark_read(*index.find(digest_of("b")));
  EXPECT_EQ(index.oldest()->digest, digest_of("c")) << "now that is the oldest";
  for (const char* name : {"a", "b", "e"}) index.erase(digest_of(name));
  EXPECT_EQ(index.oldest()->digest, digest_of("c"));
}

TEST(BlobIndex, EachUseHasItsOwnNumber) {
  BlobIndex index(1000);
  index.insert(digest_of("a"), 10, 0, false);
  const uint64_t before = index.find(digest_of("a"))->use;
  index.touch(*index.find(digest_of("a")));
  EXPECT_GT(index.find(digest_of("a"))->use, before);
}

TEST(BlobIndex, RoomCountsBlobsAndReservations) {
  BlobIndex index(100);
  index.insert(digest_of("a"), 60, 0, false);
  EXPECT_TRUE(index.fits(40));
  EXPECT_FALSE(index.fits(41));
  index.reserve(30);
  EXPECT_TRUE(index.fits(10));
  EXPECT_FALSE(index.fits(11));
  index.release(30);
  index.erase(digest_of("a"));
  EXPECT_TRUE(index.fits(100));
  EXPECT_FALSE(index.fits(UINT64_MAX)) << "no wrap-around";
}

TEST(BlobIndex, AStoreOverItsLimitFitsNothing) {
  BlobIndex index(100);
  index.insert(digest_of("a"), 600, 0, false);
  EXPECT_FALSE(index.fits(0));
  EXPECT_FALSE(index.fits(1));
}

TEST(BlobIndex, ReplacingABlobCountsItOnce) {
  BlobIndex index(100);
  index.insert(digest_of("a"), 60, 0, true);
  index.insert(digest_of("a"), 50, 0, false);
  EXPECT_EQ(index.bytes(), 50U);
  EXPECT_EQ(index.count(), 1U);
  EXPECT_EQ(index.suspects(), 0U);
}

TEST(BlobIndex, SuspectsAreCountedDown) {
  BlobIndex index(100);
  index.insert(digest_of("a"), 1, 0, true);
  index.insert(digest_of("b"), 1, 0, true);
  index.mark_sound(*index.find(digest_of("a")));
  index.mark_sound(*index.find(digest_of("a")));
  EXPECT_EQ(index.suspects(), 1U);
  index.erase(digest_of("b"));
  EXPECT_EQ(index.suspects(), 0U);
}

}  // namespace
}  // namespace inductorfs::store
