// SPDX-License-Identifier: Apache-2.0
#include "remote/operations/rereads.h"

#include <gtest/gtest.h>

namespace inductorfs::remote {
namespace {

TEST(Rereads, AreDueOncePerIntervalForEachScope) {
  Rereads rereads;
  SteadyTime now = std::chrono::steady_clock::now();
  EXPECT_FALSE(rereads.claim("a", now)) << "nothing was skipped";
  for (int i = 0; i < 3; ++i) rereads.owe("a");
  EXPECT_TRUE(rereads.claim("a", now));
  EXPECT_FALSE(rereads.claim("a", now));
  rereads.owe("a");
  rereads.owe("b");
  now += Rereads::kInterval - Milliseconds(1);
  EXPECT_FALSE(rereads.claim("a", now));
  EXPECT_TRUE(rereads.claim("b", now));
  now += Milliseconds(1);
  EXPECT_TRUE(rereads.claim("a", now));
  EXPECT_FALSE(rereads.claim("b", now + Rereads::kInterval)) << "nothing was skipped since";
}

TEST(Rereads, OweOneMoreForWhatTheReadingBeforeDidNotFind) {
  Rereads rereads;
  auto now = std::chrono::steady_clock::now();
  const auto is_due = [&] { return rereads.claim("a", now += Rereads::kInterval); };
  (void)rereads.note_whole("a", 0, 0);
  EXPECT_FALSE(is_due());
  for (const uint64_t unreadable : {7, 8}) {
    (void)rereads.note_whole("a", unreadable, 0);
    EXPECT_TRUE(is_due());
    (void)rereads.note_whole("a", unreadable, 0);
    EXPECT_FALSE(is_due()) << "it is so in the cluster";
  }
  (void)rereads.note_whole("a", 0, 0);
  EXPECT_FALSE(is_due());
}

TEST(Rereads, TellTheSameDamageAlthoughNewerEntriesCome) {
  Rereads rereads;
  EXPECT_FALSE(rereads.note_whole("a", 7, 7));
  EXPECT_TRUE(rereads.note_whole("a", 7 ^ 8, 7));
  EXPECT_FALSE(rereads.note_whole("a", 7 ^ 8 ^ 16, 7 ^ 16));
}

TEST(Rereads, RememberALimitedNumberOfScopes) {
  Rereads rereads;
  for (int i = 0; i < 10'000; ++i) rereads.owe("s" + std::to_string(i));
  EXPECT_TRUE(rereads.claim("s9999", std::chrono::steady_clock::now()));
  EXPECT_FALSE(rereads.claim("s0", std::chrono::steady_clock::now()));
}

}  // namespace
}  // namespace inductorfs::remote
