// SPDX-License-Identifier: Apache-2.0
#include "vfs/read/fitting_blobs.h"

#include <gtest/gtest.h>

namespace inductorfs::vfs {
namespace {

using codec::digest_of;

TEST(FittingBlobs, AreAboutOneNameAndOneBlob) {
  FittingBlobs fitting;
  fitting.remember("a", digest_of("one"), fitting.age());
  EXPECT_TRUE(fitting.fits("a", digest_of("one")));
  EXPECT_FALSE(fitting.fits("b", digest_of("one")));
  EXPECT_FALSE(fitting.fits("a", digest_of("two")));
  fitting.remember("a", digest_of("two"), fitting.age());
  EXPECT_FALSE(fitting.fits("a", digest_of("one")));
}

TEST(FittingBlobs, OfAnEarlierHostDoNotCount) {
  FittingBlobs fitting;
  const uint64_t before = fitting.age();
  fitting.remember("a", digest_of("one"), before);
  fitting.forget();
  EXPECT_FALSE(fitting.fits("a", digest_of("one")));
  fitting.remember("a", digest_of("one"), before);
  EXPECT_FALSE(fitting.fits("a", digest_of("one"))) << "a check that had begun before";
}

TEST(FittingBlobs, AreBounded) {
  FittingBlobs fitting;
  for (size_t i = 0; i < 2 * FittingBlobs::kLimit + 1; ++i) {
    fitting.remember(std::to_string(i), digest_of("one"), fitting.age());
    ASSERT_LE(fitting.size(), FittingBlobs::kLimit);
  }
  EXPECT_TRUE(fitting.fits(std::to_string(2 * FittingBlobs::kLimit), digest_of("one")));
}

}  // namespace
}  // namespace inductorfs::vfs
