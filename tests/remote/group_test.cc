// SPDX-License-Identifier: Apache-2.0
#include "remote/formats/group.h"

#include <gtest/gtest.h>

#include "remote_fakes.h"

namespace inductorfs::remote {
namespace {

TEST(StoredDigest, StandsWhereTheEntrysEncodingPutsIt) {
  const codec::Digest digest = codec::digest_of("x");
  EXPECT_EQ(stored_digest(codec::encode_entry(entry_of("a", digest))), digest.raw());
  EXPECT_TRUE(stored_digest("short").empty());
  std::string newer = codec::encode_entry(entry_of("a", digest));
  ++newer.front();
  EXPECT_TRUE(codec::is_newer_entry(newer));
  EXPECT_TRUE(stored_digest(newer).empty()) << "only a newer release knows where";
}

TEST(DeltaFold, KeepsTheLastWordOnEachPath) {
  // A string holds a short path in itself, and a long one elsewhere.
  for (const std::string& path : {std::string("a"), std::string(100, 'a')}) {
    const codec::Entry first = entry_of(path, codec::digest_of("1"));
    const codec::Entry second = entry_of(path, codec::digest_of("2"));
    DeltaFold fold;
    fold.apply({{first, entry_of("b", {})}, {}});
    fold.apply({{}, {path, "b"}});
    fold.apply({{second}, {}});
    for (int i = 0; i < 1000; ++i) fold.set(entry_of("other" + std::to_string(i), {}));
    fold.apply({{first}, {}});
    fold.apply({{second}, {}});
    EXPECT_EQ(fold.size(), 1002U);
    const Delta delta = std::move(fold).finish(false, {3, "n"});
    ASSERT_EQ(delta.set.size(), 1001U);
    EXPECT_EQ(delta.set.front(), second);
    EXPECT_EQ(delta.removed, std::vector<std::string>{"b"});
    EXPECT_EQ(delta.position, (Position{3, "n"}));
  }
}

TEST(DeltaFold, ASnapshotNamesNoRemovedPaths) {
  DeltaFold fold;
  fold.apply({{entry_of("a", {})}, {}});
  fold.apply({{}, {"a"}});
  const Delta delta = std::move(fold).finish(true, {});
  EXPECT_TRUE(delta.reset);
  EXPECT_TRUE(delta.set.empty());
  EXPECT_TRUE(delta.removed.empty());
}

TEST(CheckScope, AllowsOnlyWhatIsSafeInsideAKey) {
  EXPECT_TRUE(check_scope("0123456789abcdef"));
  for (const std::string& bad : {std::string(), std::string("A"), std::string("a}b"), std::string("a:b"),
                                 std::string(kScopeLengthLimit + 1, 'a')}) {
    EXPECT_FALSE(check_scope(bad)) << bad;
  }
}

TEST(RandomNonce, IsNeverTheSame) { EXPECT_NE(random_nonce(), random_nonce()); }

}  // namespace
}  // namespace inductorfs::remote
