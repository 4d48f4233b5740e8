// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include <atomic>
#include <cstdio>
#include <thread>

#include "places/roots_place.h"

namespace inductorfs::places {
namespace {

using RootsPlaceRace = RootsPlace;

TEST_F(RootsPlaceRace, IsWhatWasJudgedWhateverItsOwnerExchanges) {
  constexpr int kRounds = 20000;
  const std::string theirs = directory_ / "torchinductor_nobody";
  const std::string headers = theirs + "/headers";
  make(theirs, kNobody);
  make(headers, kNobody);
  link(theirs + "/link", kNobody);
  const ino_t victim = attributes(victim_).st_ino;
  std::atomic<bool> over{false};
  std::thread attacker([&] {
    while (!over) (void)::renameat2(AT_FDCWD, headers.c_str(), AT_FDCWD, (theirs + "/link").c_str(), RENAME_EXCHANGE);
  });
  int had = 0;
  int refused = 0;
  int led = 0;
  for (int round = 0; round < kRounds && (round < kRounds / 10 || had == 0 || refused == 0); ++round) {
    const Result<Place> place = make_place(headers);
    struct stat found {};
    const bool looked = place && ::fstat(place->fd.get(), &found) == 0;
    (looked ? had : refused) += 1;
    led += looked && found.st_ino == victim ? 1 : 0;
  }
  over = true;
  attacker.join();
  EXPECT_GT(had, 0);
  EXPECT_GT(refused, 0);
  EXPECT_EQ(led, 0);
}

}  // namespace
}  // namespace inductorfs::places
