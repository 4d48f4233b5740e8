// SPDX-License-Identifier: Apache-2.0
#include "remote/operations/block_cache.h"

#include <gtest/gtest.h>

namespace inductorfs::remote {
namespace {

codec::Digest keep(BlockCache& cache, const std::string& text) {
  const codec::Digest digest = codec::digest_of(text);
  cache.keep(digest, std::make_shared<const std::string>(text));
  return digest;
}

TEST(BlockCache, KeepsTheBlocksThatWereUsedLast) {
  BlockCache cache;
  std::vector<codec::Digest> digests;
  for (size_t i = 0; i < BlockCache::kMost; ++i) digests.push_back(keep(cache, "block " + std::to_string(i)));
  ASSERT_NE(cache.find(digests[0]), nullptr);
  keep(cache, "another");
  ASSERT_NE(cache.find(digests[0]), nullptr);
  EXPECT_EQ(*cache.find(digests[0]), "block 0");
  EXPECT_EQ(cache.find(digests[1]), nullptr) << "it was used before all others";
}

TEST(BlockCache, AgainIsNoFurtherBlock) {
  BlockCache cache;
  const auto first = keep(cache, "first");
  for (size_t i = 0; i <= BlockCache::kMost; ++i) keep(cache, "again");
  EXPECT_NE(cache.find(first), nullptr);
}

TEST(BlockCache, GivesBackWhatNobodyAsksFor) {
  BlockCache cache;
  const auto digest = keep(cache, "block");
  const auto held = cache.find(digest);
  cache.drop_unused(std::chrono::steady_clock::now());
  EXPECT_NE(cache.find(digest), nullptr);
  cache.drop_unused(std::chrono::steady_clock::now() + BlockCache::kUnusedFor);
  EXPECT_EQ(cache.find(digest), nullptr);
  EXPECT_EQ(*held, "block") << "who has it keeps it";
}

}  // namespace
}  // namespace inductorfs::remote
