// SPDX-License-Identifier: Apache-2.0
#include "dictionary.h"

#include <gtest/gtest.h>
#include <zstd.h>

#include "inductorfs/base/encoding.h"
#include "inductorfs/codec/digest.h"
#include "inductorfs/codec/frame.h"

namespace inductorfs::codec {
namespace {

constexpr size_t kCodecAt = 5;

TEST(Dictionary, IsTheOneThatFramesOfCodec2WereWrittenWith) {
  // Other bytes would make every small artefact in every cluster unreadable: make another codec number instead.
  EXPECT_EQ(digest_of(dictionary()).to_hex(), "1ea640a25435a4ebf9b70e1ffed40395cb91ed33cec4b1614ccb955e92a5ee20");
}

TEST(Dictionary, ServesSmallBlobsOnly) {
  const auto small = encode_frame(std::string(4000, 'x'));
  const auto large = encode_frame(std::string((1 << 20) + 1, 'x'));

  ASSERT_TRUE(small && large);
  EXPECT_EQ((*small)[kCodecAt], 2);
  EXPECT_EQ((*large)[kCodecAt], 1);
}

TEST(Dictionary, IsNotNeededForAPlainFrameOfASmallBlob) {
  const std::string raw(4000, 'x');
  std::string payload(ZSTD_compressBound(raw.size()), '\0');
  payload.resize(ZSTD_compress(payload.data(), payload.size(), raw.data(), raw.size(), 3));
  std::string frame = "IFSF";
  append_integer(frame, uint8_t{1});
  append_integer(frame, uint8_t{1});
  append_integer(frame, uint16_t{0});
  append_integer(frame, uint64_t{raw.size()});
  frame.append(digest_of(raw).raw());

  EXPECT_EQ(decode_frame(frame + payload, digest_of(raw), raw.size()).value_or("bad"), raw);
  frame[kCodecAt] = 2;  // a frame that claims the dictionary may do without it
  EXPECT_EQ(decode_frame(frame + payload, digest_of(raw), raw.size()).value_or("bad"), raw);
}

TEST(Dictionary, ShrinksWhatTorchGenerates) {
  const std::string source =
      "#include <torch/csrc/inductor/cpp_prefix.h>\nextern \"C\"  void  kernel(const float* in_ptr0,\n"
      "                       float* out_ptr0)\n{\n    #pragma omp parallel num_threads(2)\n    {\n";
  std::string plain(ZSTD_compressBound(source.size()), '\0');
  plain.resize(ZSTD_compress(plain.data(), plain.size(), source.data(), source.size(), 9));

  const auto frame = encode_frame(source);

  ASSERT_TRUE(frame);
  EXPECT_LT(frame->size() - kFrameHeaderSize, plain.size() * 2 / 3);
}

}  // namespace
}  // namespace inductorfs::codec
