// SPDX-License-Identifier: Apache-2.0
#include "vfs/read/verdicts.h"

#include <gtest/gtest.h>

namespace inductorfs::vfs {
namespace {

using codec::digest_of;

TEST(Verdicts, AreAboutOneNameAndOneBlob) {
  Verdicts verdicts;
  verdicts.remember("a", digest_of("one"), verdicts.age());
  EXPECT_TRUE(verdicts.fits("a", digest_of("one")));
  EXPECT_FALSE(verdicts.fits("b", digest_of("one")));
  EXPECT_FALSE(verdicts.fits("a", digest_of("two")));
  verdicts.remember("a", digest_of("two"), verdicts.age());
  EXPECT_FALSE(verdicts.fits("a", digest_of("one")));
}

TEST(Verdicts, OfAnEarlierHostDoNotCount) {
  Verdicts verdicts;
  const uint64_t before = verdicts.age();
  verdicts.remember("a", digest_of("one"), before);
  verdicts.forget();
  EXPECT_FALSE(verdicts.fits("a", digest_of("one")));
  verdicts.remember("a", digest_of("one"), before);
  EXPECT_FALSE(verdicts.fits("a", digest_of("one"))) << "a check that had begun before";
}

TEST(Verdicts, AreBounded) {
  Verdicts verdicts;
  for (size_t i = 0; i < 2 * Verdicts::kLimit + 1; ++i) {
    verdicts.remember(std::to_string(i), digest_of("one"), verdicts.age());
    ASSERT_LE(verdicts.size(), Verdicts::kLimit);
  }
  EXPECT_TRUE(verdicts.fits(std::to_string(2 * Verdicts::kLimit), digest_of("one")));
}

}  // namespace
}  // namespace inductorfs::vfs
