// SPDX-License-Identifier: Apache-2.0
#include "remote/client/breaker.h"

#include <gtest/gtest.h>

namespace inductorfs::remote {
namespace {

using Ticket = Breaker::Ticket;
constexpr Breaker::Waits kBackoff{Milliseconds(100), Milliseconds(800)};

/// The earliest moment, in steps of a millisecond, at which the breaker lets a probe through.
Milliseconds time_to_probe(Breaker& breaker, SteadyTime from) {
  for (Milliseconds waited{0}; waited < Milliseconds(5000); ++waited) {
    if (breaker.admit(from + waited) == Ticket::kProbe) return waited;
  }
  return Milliseconds(-1);
}

TEST(Breaker, LetsEverybodyThroughWhileNothingFails) {
  Breaker breaker(kBackoff);
  const SteadyTime now{};
  for (int i = 0; i < 3; ++i) {
    const Ticket ticket = breaker.admit(now);
    EXPECT_EQ(ticket, Ticket::kNormal);
    breaker.succeeded(ticket);
  }
  EXPECT_FALSE(breaker.open());
}

TEST(Breaker, RefusesAfterAFailureUntilItsTimeIsOver) {
  Breaker breaker(kBackoff);
  const SteadyTime now{};
  EXPECT_TRUE(breaker.failed(breaker.admit(now), now));
  EXPECT_EQ(breaker.admit(now), Ticket::kRefused);
  const Milliseconds rest = time_to_probe(breaker, now);
  EXPECT_GE(rest, kBackoff.first / 2);
  EXPECT_LE(rest, kBackoff.first);
}

TEST(Breaker, LetsOneProbeThroughAndItsSuccessCloses) {
  Breaker breaker(kBackoff);
  const SteadyTime now{};
  breaker.failed(breaker.admit(now), now);
  const SteadyTime later = now + kBackoff.first;
  const Ticket probe = breaker.admit(later);
  ASSERT_EQ(probe, Ticket::kProbe);
  EXPECT_EQ(breaker.admit(later), Ticket::kRefused) << "one probe at a time";
  breaker.succeeded(probe);
  EXPECT_EQ(breaker.admit(later), Ticket::kNormal);
}

TEST(Breaker, DoublesItsRestWithEachFailedProbeUpToItsLimit) {
  Breaker breaker(kBackoff);
  SteadyTime now{};
  breaker.failed(breaker.admit(now), now);
  for (const Milliseconds expected :
       {Milliseconds(100), Milliseconds(200), Milliseconds(400), Milliseconds(800), Milliseconds(800)}) {
    const Milliseconds rest = time_to_probe(breaker, now);
    EXPECT_GE(rest, expected / 2);
    EXPECT_LE(rest, expected);
    now += rest;
    breaker.failed(Ticket::kProbe, now);
  }
}

TEST(Breaker, DoesNotRestForThePatientWhileOnlyTheHastyHaveFailed) {
  Breaker breaker(kBackoff);
  const SteadyTime now{};
  for (int i = 0; i < 3; ++i) {
    breaker.failed(i == 0 ? breaker.admit(now) : Ticket::kProbe, now, Breaker::Failure::kHasty);
    EXPECT_EQ(breaker.admit(now), Ticket::kRefused);
    ASSERT_EQ(breaker.admit(now, true), Ticket::kProbe);
    EXPECT_EQ(breaker.admit(now, true), Ticket::kNormal) << "the probe may be a lookup's, which fails again";
  }
  breaker.failed(Ticket::kProbe, now);
  EXPECT_EQ(breaker.admit(now, true), Ticket::kRefused) << "who has patience waited in vain";
  breaker.failed(Ticket::kProbe, now, Breaker::Failure::kHasty);
  EXPECT_EQ(breaker.admit(now, true), Ticket::kRefused) << "and nobody has been answered since";
  breaker.succeeded(Ticket::kProbe);
  EXPECT_EQ(breaker.admit(now), Ticket::kNormal);
  breaker.failed(Ticket::kNormal, now, Breaker::Failure::kHasty);
  EXPECT_EQ(breaker.admit(now, true), Ticket::kProbe);
}

TEST(Breaker, RestsForSecondsAtMostAfterARefusal) {
  Breaker breaker({});
  SteadyTime now{};
  for (int i = 0; i < 12; ++i) breaker.failed(i == 0 ? breaker.admit(now) : Ticket::kProbe, now);
  EXPECT_EQ(breaker.admit(now + Breaker::Waits{}.most_refused), Ticket::kRefused) << "silence: a probe costs a wait";
  now += Breaker::Waits{}.most;
  for (int i = 0; i < 3; ++i) {
    breaker.failed(Ticket::kProbe, now, Breaker::Failure::kRefused);
    const Milliseconds rest = time_to_probe(breaker, now);
    EXPECT_GE(rest, Breaker::Waits{}.most_refused / 2);
    EXPECT_LE(rest, Breaker::Waits{}.most_refused);
    now += rest;
  }
}

TEST(Breaker, CountsCallsThatFailTogetherOnce) {
  Breaker breaker(kBackoff);
  const SteadyTime now{};
  const Ticket first = breaker.admit(now);
  const Ticket second = breaker.admit(now);
  const Ticket third = breaker.admit(now);
  EXPECT_TRUE(breaker.failed(first, now));
  EXPECT_FALSE(breaker.failed(second, now + Milliseconds(1)));
  breaker.succeeded(third);
  EXPECT_TRUE(breaker.open()) << "a success from before the failure proves nothing";
  EXPECT_LE(time_to_probe(breaker, now), kBackoff.first);
}

TEST(Breaker, AProbeWithoutVerdictMakesRoomForAnother) {
  Breaker breaker(kBackoff);
  const SteadyTime now{};
  breaker.failed(breaker.admit(now), now);
  const SteadyTime later = now + kBackoff.first;
  breaker.abandoned(breaker.admit(later));
  EXPECT_EQ(breaker.admit(later), Ticket::kProbe);
}

}  // namespace
}  // namespace inductorfs::remote
