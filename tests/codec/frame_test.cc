// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/codec/frame.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zstd.h>

#include <random>
#include <vector>

#include "inductorfs/base/encoding.h"
#include "inductorfs/base/fd.h"
#include "support/temporary_directory.h"

namespace inductorfs::codec {
namespace {

using inductorfs::testing::TemporaryDirectory;

constexpr uint64_t kNoLimit = 1ULL << 40;
constexpr int kTrials = 10'000;
constexpr size_t kVersionAt = 4;
constexpr size_t kCodecAt = 5;
constexpr size_t kRawSizeAt = 8;
constexpr size_t kDigestAt = 16;

std::string random_bytes(size_t size, uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

std::string text(size_t size) {
  std::string bytes;
  for (uint64_t i = 0; bytes.size() < size; ++i) bytes += "def kernel_" + std::to_string(i * i) + "(x): return x + 1\n";
  bytes.resize(size);
  return bytes;
}

std::string zstd_frame(std::string_view raw) {
  std::string out(ZSTD_compressBound(raw.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), raw.data(), raw.size(), 3));
  return out;
}

std::string header(uint8_t codec, uint64_t raw_size, const Digest& digest) {
  std::string out("IFSF\x01", 5);
  append_integer(out, codec);
  append_integer(out, uint16_t{0});
  append_integer(out, raw_size);
  return out.append(digest.raw());
}

ErrorCode decode_error(std::string_view frame, const Digest& expected, uint64_t limit = kNoLimit) {
  const auto raw = decode_frame(frame, expected, limit);
  return raw ? ErrorCode::kInternal : raw.error().code();
}

/// A file with these bytes, already deleted.
Fd file_of(std::string_view bytes) {
  const TemporaryDirectory dir;
  auto fd = open_at(AT_FDCWD, dir / "f", O_RDWR | O_CREAT, 0600);
  EXPECT_TRUE(write_full(fd->get(), bytes));
  return std::move(*fd);
}

/// Reads the file, which lives as long as the reader.
ReadAt reader(Fd file) {
  return [file = std::make_shared<Fd>(std::move(file))](char* out, size_t size, uint64_t at) {
    return pread_full(file->get(), out, size, at);
  };
}

TEST(Frame, HeaderIsTheDocumentedOne) {
  const std::string frame = encode_frame("hello").value();
  EXPECT_EQ(to_hex(frame),
            "49465346"
            "01"
            "00"
            "0000"
            "0500000000000000"
            "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
            "68656c6c6f");
  EXPECT_EQ(kFrameHeaderSize, 48U);
}

TEST(Frame, RoundTripsAllSizes) {
  for (const size_t size : {0UL, 1UL, 100UL, 131072UL, (1UL << 20) - 1, 1UL << 20, (1UL << 20) + 1, 3'000'001UL}) {
    for (const std::string& raw : {text(size), random_bytes(size)}) {
      const std::string frame = encode_frame(raw).value();
      EXPECT_EQ(decode_frame(frame, digest_of(raw), size).value(), raw) << size;
    }
  }
}

TEST(Frame, TextIsCompressedAndNoiseIsStored) {
  for (const size_t size : {200'000UL, 3'000'000UL}) {
    EXPECT_LT(encode_frame(text(size)).value().size(), size / 3);
    EXPECT_EQ(encode_frame(random_bytes(size)).value().size(), size + kFrameHeaderSize);
  }
}

TEST(EncodeFrame, FromAFileGivesTheSameBytesInExactPieces) {
  for (const size_t size : {0UL, 5UL, 900'000UL, 2'500'000UL}) {
    for (const std::string& raw : {text(size), random_bytes(size)}) {
      const ReadAt file = reader(file_of(raw));
      for (const size_t piece : {1000UL, 1024UL * 1024 - 64}) {
        std::vector<std::string> pieces;
        ASSERT_TRUE(encode_frame(file, size, digest_of(raw), piece, [&](std::string_view p) -> Result<void> {
          pieces.emplace_back(p);
          return {};
        }));
        std::string whole;
        for (size_t i = 0; i < pieces.size(); ++i) {
          EXPECT_TRUE(i + 1 == pieces.size() || pieces[i].size() == piece);
          EXPECT_FALSE(pieces[i].empty());
          EXPECT_LE(pieces[i].size(), piece);
          whole += pieces[i];
        }
        EXPECT_EQ(whole, encode_frame(raw).value());
      }
    }
  }
}

TEST(EncodeFrame, LastPieceMayBeFull) {
  const std::string raw = random_bytes(100 - kFrameHeaderSize);
  const ReadAt file = reader(file_of(raw));
  int pieces = 0;
  ASSERT_TRUE(encode_frame(file, raw.size(), digest_of(raw), 50, [&](std::string_view p) -> Result<void> {
    EXPECT_EQ(p.size(), 50U);
    ++pieces;
    return {};
  }));
  EXPECT_EQ(pieces, 2);
}

TEST(EncodeFrame, FileThatChangedIsCorrupt) {
  const ByteSink ignore = [](std::string_view) -> Result<void> { return {}; };
  for (const size_t size : {5000UL, 2'000'000UL}) {
    const std::string raw = text(size);
    const Digest digest = digest_of(raw);
    EXPECT_EQ(encode_frame(reader(file_of(raw + "x")), size, digest, 1000, ignore).error().code(), ErrorCode::kCorrupt);
    EXPECT_EQ(encode_frame(reader(file_of(raw.substr(1))), size, digest, 1000, ignore).error().code(),
              ErrorCode::kCorrupt);
    std::string flipped = raw;
    flipped[size - 1] ^= 1;
    EXPECT_EQ(encode_frame(reader(file_of(flipped)), size, digest, 1000, ignore).error().code(), ErrorCode::kCorrupt);
    EXPECT_TRUE(encode_frame(reader(file_of(raw)), size, digest, 1000, ignore));
  }
}

TEST(EncodeFrame, SinkErrorStopsAndIsHandedOn) {
  const std::string raw = random_bytes(2'000'000);
  const ReadAt file = reader(file_of(raw));
  int calls = 0;
  const auto encoded = encode_frame(file, raw.size(), digest_of(raw), 1000, [&](std::string_view) -> Result<void> {
    return ++calls < 3 ? Result<void>() : fail(ErrorCode::kUnavailable, "gone");
  });
  EXPECT_EQ(encoded.error().what(), "gone");
  EXPECT_EQ(calls, 3);
}

TEST(EncodeFrame, SinkMayEncodeAgain) {
  const std::string raw = text(2'000'000);
  const ReadAt file = reader(file_of(raw));
  std::string whole;
  ASSERT_TRUE(encode_frame(file, raw.size(), digest_of(raw), 10'000, [&](std::string_view p) -> Result<void> {
    whole += p;
    EXPECT_TRUE(encode_frame("nested"));
    return {};
  }));
  EXPECT_EQ(decode_frame(whole, digest_of(raw), kNoLimit).value(), raw);
}

TEST(FrameDecoder, PiecesOfAnyLengthGiveTheSame) {
  for (const std::string& raw : {text(300'000), random_bytes(3000), std::string()}) {
    const std::string frame = encode_frame(raw).value();
    for (const size_t piece : {1UL, 7UL, 48UL, 49UL, 100'000UL}) {
      std::string out;
      FrameDecoder decoder(digest_of(raw), raw.size(), [&](std::string_view p) -> Result<void> {
        out += p;
        return {};
      });
      for (size_t at = 0; at < frame.size(); at += piece) ASSERT_TRUE(decoder.feed(frame.substr(at, piece)));
      ASSERT_TRUE(decoder.finish());
      EXPECT_EQ(out, raw);
    }
  }
}

TEST(FrameDecoder, NeverInflatesBeyondTheLimit) {
  const std::string raw(50'000'000, '\0');
  const std::string frame = encode_frame(raw).value();
  ASSERT_LT(frame.size(), 100'000U) << "a bomb";
  EXPECT_EQ(decode_error(frame, digest_of(raw), raw.size() - 1), ErrorCode::kTooLarge);
  // The same bomb with a modest size in its header.
  std::string liar = frame;
  liar.replace(kRawSizeAt, 8, std::string("\x10\x27\0\0\0\0\0\0", 8));
  uint64_t given = 0;
  FrameDecoder decoder(digest_of(raw), 1'000'000, [&](std::string_view p) -> Result<void> {
    given += p.size();
    return {};
  });
  EXPECT_EQ(decoder.feed(liar).error().code(), ErrorCode::kCorrupt);
  EXPECT_LE(given, 10'000U);
}

TEST(FrameDecoder, TrailingBytesAreCorrupt) {
  for (const std::string& raw : {text(5000), random_bytes(5000), std::string()}) {
    const std::string frame = encode_frame(raw).value();
    EXPECT_EQ(decode_error(frame + "x", digest_of(raw)), ErrorCode::kCorrupt);
    FrameDecoder decoder(digest_of(raw), kNoLimit, [](std::string_view) -> Result<void> { return {}; });
    ASSERT_TRUE(decoder.feed(frame));
    EXPECT_FALSE(decoder.feed("x")) << "in a piece of its own";
  }
}

TEST(FrameDecoder, SeveralZstdFramesAreCorrupt) {
  const std::string half = text(3000);
  const std::string two = header(1, 6000, digest_of(half + half)) + zstd_frame(half) + zstd_frame(half);
  EXPECT_EQ(decode_error(two, digest_of(half + half)), ErrorCode::kCorrupt);
  const std::string skippable("\x50\x2a\x4d\x18\x04\0\0\0abcd", 12);
  EXPECT_EQ(decode_error(header(1, 3000, digest_of(half)) + skippable + zstd_frame(half), digest_of(half)),
            ErrorCode::kCorrupt);
  EXPECT_EQ(decode_error(header(1, 0, digest_of("")) + skippable, digest_of("")), ErrorCode::kCorrupt);
}

TEST(FrameDecoder, WindowOverTheLimitIsCorrupt) {
  // A zstd frame without a content size whose descriptor asks for a window of 2^31.
  const std::string hungry("\x28\xb5\x2f\xfd\x00\xa8\x01\x00\x00", 9);
  EXPECT_EQ(decode_error(header(1, 0, digest_of("")) + hungry, digest_of("")), ErrorCode::kCorrupt);
  const std::string modest("\x28\xb5\x2f\xfd\x00\x58\x01\x00\x00", 9);
  EXPECT_EQ(decode_frame(header(1, 0, digest_of("")) + modest, digest_of(""), 0).value(), "")
      << "the same with a small window is what it says: an empty blob";
}

TEST(FrameDecoder, HeaderLiesAreCorrupt) {
  const std::string raw = text(3000);
  const Digest digest = digest_of(raw);
  const std::string frame = encode_frame(raw).value();
  for (size_t at = 0; at < kFrameHeaderSize; ++at) {
    std::string bad = frame;
    bad[at] ^= 0x02;
    const bool size_over_limit = at >= kRawSizeAt + 5 && at < kDigestAt;
    // Nobody can tell them from what a newer release writes there.
    const bool newer = at == kVersionAt || (at > kCodecAt && at < kRawSizeAt);
    const ErrorCode lie = size_over_limit ? ErrorCode::kTooLarge : ErrorCode::kCorrupt;
    EXPECT_EQ(decode_error(bad, digest), newer ? ErrorCode::kNotSupported : lie) << at;
  }
  std::string stored = frame;
  stored[kCodecAt] = 0;
  EXPECT_EQ(decode_error(stored, digest), ErrorCode::kCorrupt);
  EXPECT_EQ(decode_error(frame, digest_of("other")), ErrorCode::kCorrupt);
  // A frame whose header is right and whose bytes are another blob's.
  std::string other = encode_frame(text(3000).replace(0, 3, "DEF")).value();
  other.replace(kDigestAt, Digest::kSize, digest.raw());
  EXPECT_EQ(decode_error(other, digest), ErrorCode::kCorrupt);
}

/// What a release writes that this one has never heard of is not damaged: it must not be taken away from others.
TEST(FrameDecoder, WhatANewerReleaseMayHaveWrittenIsNotSupported) {
  const std::string raw = text(3000);
  const Digest digest = digest_of(raw);
  const auto with = [&](size_t at, char byte) {
    std::string frame = encode_frame(raw).value();
    frame[at] = byte;
    return frame;
  };
  for (const auto& frame : {with(kVersionAt, 2), with(kVersionAt, '\xff'), with(kCodecAt, 4), with(kCodecAt + 1, 1)}) {
    bool given = false;
    FrameDecoder decoder(digest, raw.size(), [&](std::string_view) -> Result<void> {
      given = true;
      return {};
    });
    const auto fed = decoder.feed(frame);
    ASSERT_FALSE(fed);
    EXPECT_EQ(fed.error().code(), ErrorCode::kNotSupported) << fed.error().to_string();
    EXPECT_FALSE(given);
  }
  EXPECT_EQ(decode_error(with(kVersionAt, 0), digest), ErrorCode::kCorrupt) << "no release has ever written that";
  std::string other = with(kCodecAt, 3);
  other.replace(kDigestAt, Digest::kSize, digest_of("other").raw());
  EXPECT_EQ(decode_error(other, digest), ErrorCode::kCorrupt) << "the frame of another blob, whatever it is made of";
}

TEST(FrameDecoder, ErrorsStay) {
  FrameDecoder decoder(digest_of("hello"), kNoLimit, [](std::string_view) -> Result<void> { return {}; });
  const auto first = decoder.feed(std::string(60, 'x'));
  ASSERT_FALSE(first);
  EXPECT_EQ(decoder.feed(encode_frame("hello").value()).error().what(), first.error().what());
  EXPECT_EQ(decoder.finish().error().what(), first.error().what());
}

TEST(FrameDecoder, SinkErrorIsHandedOnAndStays) {
  FrameDecoder decoder(digest_of("hello"), kNoLimit,
                       [](std::string_view) -> Result<void> { return fail(ErrorCode::kNoSpace, "full"); });
  EXPECT_EQ(decoder.feed(encode_frame("hello").value()).error().code(), ErrorCode::kNoSpace);
  EXPECT_EQ(decoder.finish().error().code(), ErrorCode::kNoSpace);
}

/// Damage: up to three flipped bits, or a cut. The only damaged frames that may pass are those that give the right
/// bytes all the same (zstd has several spellings of some fields).
void expect_damage_detected(const std::string& good, const std::string& raw, uint32_t seed) {
  const Digest digest = digest_of(raw);
  std::mt19937 random(seed);
  int undetected = 0;
  for (int i = 0; i < kTrials; ++i) {
    std::string bad = good;
    if (i % 4 == 0) {
      bad.resize(random() % good.size());
    } else {
      for (size_t flips = random() % 3 + 1; flips > 0; --flips) {
        bad[random() % bad.size()] ^= static_cast<char>(1U << random() % 8);
      }
    }
    const auto decoded = decode_frame(bad, digest, raw.size());
    if (!decoded) continue;
    ASSERT_EQ(*decoded, raw) << "damage went through";
    if (bad != good) ++undetected;
  }
  EXPECT_LE(undetected, kTrials / 50) << "more harmless damage than the spellings of zstd explain";
}

TEST(FrameDecoder, DamageOfFramesWithTheDictionaryIsDetected) {
  const std::string good = encode_frame(text(2000)).value();
  ASSERT_EQ(good[kCodecAt], 2);
  expect_damage_detected(good, text(2000), 7);
}

TEST(FrameDecoder, DamageOfStoredFramesIsDetected) {
  const std::string good = encode_frame(random_bytes(500)).value();
  ASSERT_EQ(good[kCodecAt], 0);
  expect_damage_detected(good, random_bytes(500), 8);
}

TEST(FrameDecoder, DamageOfFramesWithoutTheDictionaryIsDetected) {
  expect_damage_detected(header(1, 2000, digest_of(text(2000))) + zstd_frame(text(2000)), text(2000), 9);
}

/// What a reader that looks at the bytes before finish() would have seen is never more than the header's size.
TEST(FrameDecoder, DamageNeverGivesOutMoreThanTheHeaderSays) {
  std::mt19937 random(10);
  const std::string raw = text(2000);
  const std::string good = encode_frame(raw).value();
  for (int i = 0; i < kTrials; ++i) {
    std::string bad = good;
    bad[random() % bad.size()] ^= static_cast<char>(1U << random() % 8);
    uint64_t given = 0;
    FrameDecoder decoder(digest_of(raw), raw.size(), [&](std::string_view piece) -> Result<void> {
      given += piece.size();
      return {};
    });
    bool fed = true;
    for (size_t at = 0; at < bad.size() && fed; at += 97) fed = decoder.feed(bad.substr(at, 97)).has_value();
    ASSERT_LE(given, raw.size());
  }
}

}  // namespace
}  // namespace inductorfs::codec
