// SPDX-License-Identifier: Apache-2.0
// The part of the index (remote/index.h) that a mount without a cluster has, too.
#include <gtest/gtest.h>

#include <optional>

#include "clusters.h"

namespace inductorfs::remote {
namespace {

/// What every remote promises of scopes, that of a mount without a cluster too.
class ScopeContract : public OverClusters {
 protected:
  std::vector<ScopeInformation> listed(size_t limit) {
    auto scopes = remote.index->list_scopes(limit, soon());
    EXPECT_TRUE(scopes) << scopes.error().to_string();
    return scopes.value_or(std::vector<ScopeInformation>());
  }
};

TEST_P(ScopeContract, NothingIsListedBeforeItWasAnnounced) { EXPECT_TRUE(listed(10).empty()); }

TEST_P(ScopeContract, ListsWhatWasAnnouncedOnceEach) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(remote.index->announce_scope(information("a"), soon()));
  EXPECT_EQ(listed(10), std::vector<ScopeInformation>{information("a")});
  ASSERT_TRUE(remote.index->announce_scope(information("b"), soon()));
  EXPECT_EQ(listed(10).size(), 2U);
  EXPECT_EQ(listed(1).size(), 1U);
  EXPECT_TRUE(listed(0).empty());
}

TEST_P(ScopeContract, MoreThanOnePageIsListed) {
  constexpr int kMany = 150;
  for (int i = 0; i < kMany; ++i) ASSERT_TRUE(remote.index->announce_scope(information(std::to_string(i)), soon()));
  EXPECT_EQ(listed(1'000).size(), static_cast<size_t>(kMany));
  EXPECT_EQ(listed(100).size(), 100U);
}

TEST_P(ScopeContract, TakesTheLongestTextAndRefusesWhatIsNone) {
  const auto code = [&](const ScopeInformation& scope) {
    const auto announced = remote.index->announce_scope(scope, soon());
    return announced ? std::optional<ErrorCode>() : announced.error().code();
  };
  EXPECT_EQ(code(information(std::string(kScopeTextLimit, 'x'))), std::nullopt);
  EXPECT_EQ(code(information(std::string(kScopeTextLimit + 1, 'x'))), ErrorCode::kInvalid);
  EXPECT_EQ(code(information("\x1b[2J")), ErrorCode::kInvalid);
  EXPECT_EQ(code({codec::digest_of("other").to_hex(), "family", "text"}), ErrorCode::kInvalid);
  EXPECT_EQ(code({codec::digest_of("text").to_hex(), "", "text"}), ErrorCode::kInvalid);
  EXPECT_EQ(listed(10), std::vector<ScopeInformation>{information(std::string(kScopeTextLimit, 'x'))});
}

INSTANTIATE_TEST_SUITE_P(Over, ScopeContract, ::testing::Values(kInMemory, kOnRedis, kOnRedisCluster, kOnThisHost),
                         name_of_kind);

}  // namespace
}  // namespace inductorfs::remote
