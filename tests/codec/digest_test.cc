// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/codec/digest.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>
#include <unordered_set>
#include <vector>

#include "inductorfs/base/fd.h"
#include "inductorfs/codec/keyed_digest.h"
#include "support/temporary_directory.h"

namespace inductorfs::codec {
namespace {

constexpr const char* kHelloHex = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
constexpr const char* kEmptyHex = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

TEST(Digest, IsSha256) {
  EXPECT_EQ(digest_of("hello").to_hex(), kHelloHex);
  EXPECT_EQ(digest_of("").to_hex(), kEmptyHex);
}

TEST(Digest, HexAndRawRoundTrip) {
  const Digest digest = digest_of("hello");
  EXPECT_EQ(Digest::from_hex(kHelloHex), digest);
  EXPECT_EQ(Digest::from_raw(digest.raw()), digest);
}

TEST(Digest, RefusesOtherLengthsAndSpellings) {
  EXPECT_EQ(Digest::from_hex(std::string(62, 'a')), std::nullopt);
  EXPECT_EQ(Digest::from_hex(std::string(66, 'a')), std::nullopt);
  EXPECT_EQ(Digest::from_hex(std::string(64, 'A')), std::nullopt);
  EXPECT_EQ(Digest::from_raw(std::string(31, 'a')), std::nullopt);
  EXPECT_EQ(Digest::from_raw(std::string(33, 'a')), std::nullopt);
}

TEST(Digest, CanBeAHashKey) {
  std::unordered_set<Digest> set{digest_of("a"), digest_of("b"), digest_of("a")};
  EXPECT_EQ(set.size(), 2U);
}

TEST(DigestOfFile, HashesAllAndLeavesTheOffset) {
  const inductorfs::testing::TemporaryDirectory dir;
  std::string bytes;
  for (int i = 0; i < 300'001; ++i) bytes.push_back(static_cast<char>(i * 31));
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, dir / "f", bytes));
  auto fd = open_at(AT_FDCWD, dir / "f", O_RDONLY);
  ASSERT_EQ(::lseek(fd->get(), 77, SEEK_SET), 77);
  EXPECT_EQ(digest_of_file(fd->get()).value(), digest_of(bytes));
  EXPECT_EQ(::lseek(fd->get(), 0, SEEK_CUR), 77);
}

TEST(DigestOfFile, PieceSizedAndEmptyFiles) {
  const inductorfs::testing::TemporaryDirectory dir;
  for (const size_t size : {size_t{0}, size_t{128 * 1024}, size_t{256 * 1024}}) {
    const std::string bytes(size, 'q');
    ASSERT_TRUE(write_file_atomically(AT_FDCWD, dir / "f", bytes));
    auto fd = open_at(AT_FDCWD, dir / "f", O_RDONLY);
    EXPECT_EQ(digest_of_file(fd->get()).value(), digest_of(bytes)) << size;
  }
}

TEST(DigestOfFile, DirectoryIsAnError) {
  auto fd = open_at(AT_FDCWD, "/", O_RDONLY | O_DIRECTORY);
  ASSERT_TRUE(fd);
  EXPECT_EQ(digest_of_file(fd->get()).error().code(), ErrorCode::kIsDirectory);
}

TEST(Hasher, PiecesGiveTheSameDigest) {
  Hasher hasher;
  for (const char* piece : {"h", "", "ell", "o"}) hasher.update(piece);
  EXPECT_EQ(hasher.finish().to_hex(), kHelloHex);
}

TEST(Hasher, TwoAtOnceDoNotDisturbEachOther) {
  Hasher first;
  first.update("hel");
  Hasher second;
  second.update("");
  Hasher moved = std::move(first);
  EXPECT_EQ(digest_of("hello").to_hex(), kHelloHex);
  moved.update("lo");
  EXPECT_EQ(second.finish().to_hex(), kEmptyHex);
  EXPECT_EQ(moved.finish().to_hex(), kHelloHex);
}

TEST(Hasher, AnAbandonedOneLeavesNothingBehind) {
  {
    Hasher abandoned;
    abandoned.update("junk");
  }
  EXPECT_EQ(digest_of("hello").to_hex(), kHelloHex);
}

TEST(Hasher, MayEndOnAnotherThread) {
  Hasher hasher;
  hasher.update("hello");
  Digest digest;
  std::jthread([&, moved = std::move(hasher)]() mutable { digest = moved.finish(); }).join();
  EXPECT_EQ(digest.to_hex(), kHelloHex);
}

TEST(TorchHash, NamesCodeAsTorchDoes) {
  // torch._inductor.codecache.code_hash("hello"), torch 2.9
  EXPECT_EQ("c" + torch_hash("hello"), "cftze3os7wcrq4jxihmvmlopctynrmhs4d6tuexttaqzwfe4ltas");
  EXPECT_EQ(torch_hash("").size(), 51U);
}

/// RFC 4231, test cases 2 and 6.
TEST(KeyedDigest, IsHmac) {
  EXPECT_EQ(keyed_digest_of("Jefe", "what do ya want for nothing?").to_hex(),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(
      keyed_digest_of(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First").to_hex(),
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

}  // namespace
}  // namespace inductorfs::codec
