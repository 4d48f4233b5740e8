// SPDX-License-Identifier: Apache-2.0
#include "core.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <vector>

#include "inductorfs/supervisor/protocol.h"

/// The supervisor's decisions, with a clock turned by hand.
namespace inductorfs::supervisor {
namespace {

constexpr int exited(int code) { return code << 8; }
constexpr int kKilled = SIGKILL;

class Decisions : public ::testing::Test {
 protected:
  Action next() { return core_.next(now_, signs_); }
  /// Everything until nothing is left to do at this moment; the last action.
  void start() {
    ASSERT_EQ(next(), Action::kStart);
    signs_ = {};
    core_.started(now_);
    ASSERT_EQ(next(), Action::kNothing);
  }
  void serve() {
    signs_ = {now_, now_};
    (void)next();
  }
  Outcome end(int status, bool ours = true) { return core_.ended(now_, status, ours, signs_); }
  /// A worker that has served for a while.
  void start_and_serve() {
    start();
    serve();
    now_ += Core::kHealthy;
  }
  void beat(Time span) {
    for (Time passed = 0; passed < span; passed += 1000) {
      now_ += 1000;
      signs_.beat = now_;
      ASSERT_EQ(next(), Action::kNothing);
    }
  }
  /// Time in which the worker says nothing, looked at as often as a supervisor does.
  void silence(Time span) {
    for (Time passed = 0; passed < span; passed += 1000) {
      ASSERT_EQ(next(), Action::kNothing);
      now_ += 1000;
    }
  }
  /// Time in which nothing is due, looked at as often as a supervisor does; not at its end.
  void pass(Time span) {
    for (const Time end = now_ + span; now_ < end; now_ += std::min<Time>(100, end - now_)) {
      ASSERT_EQ(next(), Action::kNothing);
    }
  }
  /// How long until the next start.
  Time pause() {
    const Time begin = now_;
    while (next() == Action::kNothing && now_ - begin < 100'000) ++now_;
    return now_ - begin;
  }

  Core core_{Limits{}};
  Time now_ = 1'000'000;
  Signs signs_;
};

TEST_F(Decisions, EndsWithTheMount) {
  start_and_serve();
  EXPECT_EQ(end(exited(0)), Outcome::kEnded);
  EXPECT_EQ(next(), Action::kEnd);
  EXPECT_EQ(core_.exit_code(), 0);
}

TEST_F(Decisions, EndsWithAFirstWorkerThatNeverServed) {
  start();
  EXPECT_EQ(end(exited(1)), Outcome::kFirstFailed);
  EXPECT_EQ(next(), Action::kEnd);
  EXPECT_EQ(core_.exit_code(), 1);
}

TEST_F(Decisions, TellsTheSignalOfAFirstWorkerAsAShellDoes) {
  start();
  EXPECT_EQ(end(SIGSEGV), Outcome::kFirstFailed);
  EXPECT_EQ(core_.exit_code(), 128 + SIGSEGV);
}

TEST_F(Decisions, StartsAnotherAtOnceAfterACrash) {
  start_and_serve();
  for (uint32_t i = 1; i < 4; ++i) {
    EXPECT_EQ(end(kKilled), Outcome::kCrashed);
    EXPECT_EQ(core_.restarts(), i);
    EXPECT_EQ(core_.last_status(), kKilled);
    start_and_serve();
  }
}

TEST_F(Decisions, TakesEveryOtherExitForACrash) {
  start_and_serve();
  EXPECT_EQ(end(exited(1)), Outcome::kCrashed);
  start_and_serve();
  EXPECT_EQ(end(exited(kExitHandOver)), Outcome::kCrashed) << "nobody had asked for it";
  start_and_serve();
  EXPECT_EQ(end(exited(0), false), Outcome::kCrashed) << "a program that is no worker of ours";
}

TEST_F(Decisions, WaitsLongerAndLongerForWorkersThatDoNotLast) {
  start_and_serve();
  std::vector<Time> pauses;
  (void)end(kKilled);
  for (int i = 0; i < 4; ++i) {
    pauses.push_back(pause());
    start();
    serve();
    (void)end(kKilled);
  }
  EXPECT_EQ(pauses, (std::vector<Time>{0, 0, 100, 200}));
  (void)pause();
  start_and_serve();
  (void)end(kKilled);
  EXPECT_EQ(pause(), 0) << "one that lasted ends the series";
}

TEST_F(Decisions, NeverPausesLongerThanItsLimit) {
  Core core{Limits{.crashes = 0}};
  core_ = core;
  start_and_serve();
  for (int i = 0; i < 30; ++i) {
    (void)end(kKilled);
    if (core_.responding()) break;
    EXPECT_LE(pause(), Core::kLongestPause);
    start();
  }
}

TEST_F(Decisions, KillsAWorkerWhoseHeartHasStopped) {
  start_and_serve();
  beat(60'000);
  silence(15'000);
  EXPECT_EQ(next(), Action::kNothing);
  now_ += 1;
  EXPECT_EQ(next(), Action::kKill);
  EXPECT_EQ(next(), Action::kNothing) << "once is enough";
  EXPECT_EQ(end(kKilled), Outcome::kCrashed);
  EXPECT_TRUE(core_.last_was_hung());
  EXPECT_EQ(next(), Action::kStart);
}

TEST_F(Decisions, ForgivesTheSilenceOfATimeInWhichItWasFrozenItself) {
  start_and_serve();
  now_ += 3'600'000;
  silence(15'000);
  now_ += 1;
  EXPECT_EQ(next(), Action::kKill) << "it had its time to say something";
}

TEST_F(Decisions, CountsNoSilenceOfAFreezeOfAnyLength) {
  for (const Time hang : {Time{1'000}, Time{3'000}, Time{15'000}}) {
    for (const Time frozen : {hang / 2, hang, hang * 4 / 3, hang * 100}) {
      core_ = Core{Limits{.hang = hang}};
      start_and_serve();
      for (int i = 0; i < 6; ++i) {
        now_ += hang / 5;  // the last beat is older than the freeze
        ASSERT_EQ(next(), Action::kNothing);
        now_ += frozen;
        EXPECT_EQ(next(), Action::kNothing) << hang << " " << frozen;
        now_ += 10;
        EXPECT_EQ(next(), Action::kNothing) << "a second look may come before the worker's first beat";
        signs_.beat = now_;
        ASSERT_EQ(next(), Action::kNothing);
      }
    }
  }
}

TEST_F(Decisions, CountsNoFreezeForTheDeadlineOfAStartOrOfAHandover) {
  start_and_serve();
  (void)end(kKilled);
  start();
  now_ += 3'600'000;
  EXPECT_EQ(next(), Action::kNothing);
  serve();
  now_ += Core::kHealthy;
  ASSERT_TRUE(core_.asked_to_upgrade(now_, signs_));
  now_ += 3'600'000;
  EXPECT_EQ(next(), Action::kNothing);
  EXPECT_EQ(core_.restarts(), 1U);
}

TEST_F(Decisions, NeverTakesAWorkerForHungWhenTold) {
  core_ = Core{Limits{.hang = 0}};
  start_and_serve();
  for (int i = 0; i < 100; ++i) {
    now_ += 4'000;
    EXPECT_EQ(next(), Action::kNothing);
  }
}

TEST_F(Decisions, KillsAWorkerThatNeverServes) {
  start_and_serve();
  (void)end(kKilled);
  start();
  pass(59'999);
  EXPECT_EQ(next(), Action::kNothing);
  ++now_;
  EXPECT_EQ(next(), Action::kKill);
}

// ---- upgrades

TEST_F(Decisions, StartsTheNewProgramAfterTheOldHasHandedOver) {
  start_and_serve();
  ASSERT_TRUE(core_.asked_to_upgrade(now_, signs_));
  EXPECT_FALSE(core_.trying_new());
  EXPECT_EQ(end(exited(kExitHandOver)), Outcome::kHandedOver);
  EXPECT_TRUE(core_.trying_new());
  start();
  signs_ = {now_, now_};
  EXPECT_EQ(next(), Action::kAdopt);
  EXPECT_FALSE(core_.trying_new());
  EXPECT_EQ(core_.upgrades(), 1U);
  EXPECT_EQ(core_.restarts(), 0U);
}

TEST_F(Decisions, ReturnsToTheOldProgramWhenTheNewOneFails) {
  for (const bool hangs : {false, true}) {
    core_ = Core{Limits{}};
    start_and_serve();
    ASSERT_TRUE(core_.asked_to_upgrade(now_, signs_));
    (void)end(exited(kExitHandOver));
    start();
    if (hangs) {
      pass(Limits{}.upgrade);
      EXPECT_EQ(next(), Action::kKill);
    }
    EXPECT_EQ(end(hangs ? kKilled : exited(1), false), Outcome::kNewFailed);
    EXPECT_EQ(next(), Action::kDiscard);
    EXPECT_FALSE(core_.trying_new());
    EXPECT_EQ(core_.upgrades_failed(), 1U);
    start_and_serve();
    EXPECT_EQ(core_.restarts(), 0U) << "that was no crash of the mount";
  }
}

TEST_F(Decisions, DoesNotEndWithANewProgramThatIsSomethingElse) {
  start_and_serve();
  ASSERT_TRUE(core_.asked_to_upgrade(now_, signs_));
  (void)end(exited(kExitHandOver));
  start();
  EXPECT_EQ(end(exited(0), false), Outcome::kNewFailed) << "/bin/true";
}

TEST_F(Decisions, KeepsANewProgramThatServedAndCrashedBeforeAnybodyLooked) {
  start_and_serve();
  ASSERT_TRUE(core_.asked_to_upgrade(now_, signs_));
  (void)end(exited(kExitHandOver));
  start();
  signs_ = {now_, now_};
  EXPECT_EQ(end(kKilled), Outcome::kCrashed);
  EXPECT_EQ(next(), Action::kAdopt);
  EXPECT_EQ(next(), Action::kStart);
}

TEST_F(Decisions, GoesOnWithTheUpgradeOfAWorkerThatDoesNotHandOver) {
  start_and_serve();
  ASSERT_TRUE(core_.asked_to_upgrade(now_, signs_));
  pass(10'000);
  signs_.beat = now_;
  EXPECT_EQ(next(), Action::kKill);
  EXPECT_EQ(end(kKilled), Outcome::kHandedOver);
  EXPECT_TRUE(core_.trying_new());
}

TEST_F(Decisions, RefusesAnUpgradeThatComesAtTheWrongTime) {
  EXPECT_FALSE(core_.asked_to_upgrade(now_, signs_));
  start();
  EXPECT_FALSE(core_.asked_to_upgrade(now_, signs_));
  signs_ = {now_, now_};  // which nobody has looked at yet
  EXPECT_TRUE(core_.asked_to_upgrade(now_, signs_));
  EXPECT_FALSE(core_.asked_to_upgrade(now_, signs_)) << "one is on its way";
  core_ = Core{Limits{}};
  start_and_serve();
  core_.asked_to_stop(now_);
  EXPECT_FALSE(core_.asked_to_upgrade(now_, signs_));
}

class NewProgram : public Decisions {
 protected:
  /// A mount whose new program has just begun to serve.
  void upgrade(const Limits& limits) {
    core_ = Core{limits};
    start_and_serve();
    ASSERT_TRUE(core_.asked_to_upgrade(now_, signs_));
    (void)end(exited(kExitHandOver));
    start();
    signs_ = {now_, now_};
    ASSERT_EQ(next(), Action::kAdopt);
  }
  /// Crashes until the old program is the program again; how many that were, 0 for never.
  unsigned crashes_until_back(unsigned most, Time between) {
    for (unsigned i = 1; i <= most; ++i) {
      now_ += between;
      (void)end(kKilled);
      const Action action = next();
      if (action == Action::kGoBack) return i;
      if (core_.safe_mode()) return 0;
      while (core_.rest(now_) > 0) now_ += core_.rest(now_);
      if (action == Action::kNothing) {
        EXPECT_EQ(next(), Action::kStart);
      }
      core_.started(now_);
      signs_ = {now_, now_};
      (void)next();
    }
    return 0;
  }
};

TEST_F(NewProgram, ThatServesAndCrashesIsReplacedByTheOldOne) {
  for (const Time between : {0, 10, 1000, 19'000}) {
    upgrade({});
    EXPECT_EQ(crashes_until_back(10, between), Core::kCrashesOfNew) << between;
    EXPECT_FALSE(core_.safe_mode());
    EXPECT_EQ(core_.upgrades_taken_back(), 1U);
    EXPECT_EQ(core_.restarts(), Core::kCrashesOfNew);
    EXPECT_EQ(next(), Action::kStart) << "at once";
    core_.started(now_);
    serve();
    EXPECT_EQ(crashes_until_back(10, between), 0U) << "there is nothing before that one";
  }
}

TEST_F(NewProgram, IsReplacedBeforeTheCrashLimitLeadsToSafeMode) {
  for (const unsigned limit : {1U, 2U, 3U, 4U, 64U, 0U}) {
    upgrade({.crashes = limit});
    const unsigned most = limit == 0 ? 3 : std::min(3U, limit);
    EXPECT_EQ(crashes_until_back(10, 10), most) << limit;
    EXPECT_FALSE(core_.safe_mode()) << limit;
  }
}

TEST_F(NewProgram, StaysWhenItsCrashesAreRareOrComeLate) {
  upgrade({});
  EXPECT_EQ(crashes_until_back(20, 35'000), 0U);
  upgrade({});
  now_ += Core::kProbation;
  signs_.beat = now_;
  EXPECT_EQ(crashes_until_back(10, 10), 0U);
  EXPECT_TRUE(core_.safe_mode()) << "a fault that the upgrade did not bring";
}

TEST_F(NewProgram, OfTheProgramBeforeTheCrashesDoNotCount) {
  start_and_serve();
  for (int i = 0; i < 4; ++i) {
    (void)end(kKilled);
    start_and_serve();
  }
  ASSERT_TRUE(core_.asked_to_upgrade(now_, signs_));
  (void)end(exited(kExitHandOver));
  start();
  signs_ = {now_, now_};
  ASSERT_EQ(next(), Action::kAdopt);
  EXPECT_EQ(crashes_until_back(10, 10), Core::kCrashesOfNew);
}

TEST_F(NewProgram, IsReplacedByTheOneOfTheLastUpgradeButOne) {
  upgrade({});
  now_ += 1000;
  ASSERT_TRUE(core_.asked_to_upgrade(now_, signs_));
  (void)end(exited(kExitHandOver));
  start();
  EXPECT_EQ(end(exited(1)), Outcome::kNewFailed) << "it never served";
  EXPECT_EQ(next(), Action::kDiscard);
  start();
  serve();
  EXPECT_EQ(crashes_until_back(10, 10), Core::kCrashesOfNew) << "the second one is on trial still";
}

// ---- a worker that a kill does not end

/// A worker that has hung and was killed, and that the kernel does not let go.
class HeldWorker : public Decisions {
 protected:
  void hang(const Limits& limits = {}) {
    core_ = Core{limits};
    start_and_serve();
    while (next() == Action::kNothing) now_ += 1000;
    pass(Core::kDeathPatience);
    ASSERT_FALSE(core_.is_held()) << "most die at once";
    ASSERT_EQ(next(), Action::kHeld);
    ASSERT_TRUE(core_.is_held());
    ASSERT_EQ(next(), Action::kNothing) << "it is said once";
  }
};

TEST_F(HeldWorker, IsFollowedByAnotherWhenTheKernelLetsItGo) {
  hang();
  pass(600'000);
  EXPECT_EQ(end(kKilled), Outcome::kCrashed);
  EXPECT_TRUE(core_.last_was_hung());
  EXPECT_FALSE(core_.is_held());
  start_and_serve();
  EXPECT_FALSE(core_.is_held());
}

TEST_F(HeldWorker, HoldsUpNoStop) {
  hang();
  core_.asked_to_stop(now_);
  EXPECT_EQ(next(), Action::kEnd);
  EXPECT_EQ(core_.exit_code(), 1);
}

TEST_F(HeldWorker, HoldsUpNoStopThatCameBefore) {
  start_and_serve();
  core_.asked_to_stop(now_);
  while (next() == Action::kNothing) now_ += 1000;
  pass(Core::kDeathPatience);
  EXPECT_EQ(next(), Action::kHeld);
  EXPECT_EQ(next(), Action::kEnd);
}

TEST_F(HeldWorker, IsWaitedForNoLongerThanTheMountIsThere) {
  hang();
  core_.session_ended();
  EXPECT_EQ(next(), Action::kEnd);
  EXPECT_EQ(core_.exit_code(), 0);
}

TEST_F(HeldWorker, IsNoticedInTime) {
  start_and_serve();
  while (next() == Action::kNothing) now_ += 1000;
  EXPECT_EQ(core_.rest(now_), Core::kDeathPatience);
  now_ += Core::kDeathPatience;
  EXPECT_EQ(core_.rest(now_), 0);
}

// ---- crash loops

TEST_F(Decisions, EntersSafeModeAfterCrashesWithinAMinute) {
  start_and_serve();
  for (int i = 0; i < 4; ++i) {
    (void)end(kKilled);
    EXPECT_FALSE(core_.safe_mode());
    now_ += 10'000;
    start_and_serve();
  }
  (void)end(kKilled);
  EXPECT_TRUE(core_.safe_mode());
}

TEST_F(Decisions, StaysOutOfSafeModeWhenCrashesAreRare) {
  start_and_serve();
  for (int i = 0; i < 50; ++i) {
    (void)end(kKilled);
    EXPECT_FALSE(core_.safe_mode());
    now_ += 15'100;
    start_and_serve();
  }
  core_ = Core{Limits{.crashes = 0}};
  start_and_serve();
  for (int i = 0; i < 50; ++i) {
    (void)end(kKilled);
    EXPECT_FALSE(core_.safe_mode()) << "switched off";
    start_and_serve();
  }
}

TEST_F(Decisions, LeavesSafeModeAtARestartAfterALongTimeOrByAnUpgrade) {
  for (const bool upgrade : {false, true}) {
    core_ = Core{Limits{}};
    start_and_serve();
    for (int i = 0; i < 5; ++i) {
      (void)end(kKilled);
      start_and_serve();
    }
    ASSERT_TRUE(core_.safe_mode());
    if (upgrade) {
      ASSERT_TRUE(core_.asked_to_upgrade(now_, signs_));
      (void)end(exited(kExitHandOver));
    } else {
      beat(Core::kSafeModeLeast);
      (void)end(kKilled);
      EXPECT_TRUE(core_.safe_mode()) << "this crash is a fresh one";
      beat(0);
      start_and_serve();
      ASSERT_TRUE(core_.asked_to_upgrade(now_, signs_));
      (void)end(exited(kExitHandOver));
    }
    EXPECT_FALSE(core_.safe_mode());
    start_and_serve();
  }
}

TEST_F(Decisions, AnswersItselfWhenNoWorkerCanStart) {
  start_and_serve();
  int starts = 0;
  while (!core_.responding()) {
    (void)end(exited(1));
    if (core_.responding()) break;
    (void)pause();
    start();
    ASSERT_LT(++starts, 20);
  }
  EXPECT_TRUE(core_.safe_mode());
  EXPECT_EQ(starts, 7) << "five until safe mode, and three in it";
  EXPECT_EQ(pause(), Core::kRetryWhileResponding);
  start();
  EXPECT_TRUE(core_.responding()) << "until that one serves";
  serve();
  EXPECT_FALSE(core_.responding());
}

TEST_F(Decisions, AnswersItselfWhenARequestKillsEachWorker) {
  start_and_serve();
  for (int i = 0; i < 20 && !core_.responding(); ++i) {
    (void)end(SIGSEGV);
    (void)pause();
    if (core_.responding()) break;
    start();
    serve();
  }
  EXPECT_TRUE(core_.responding());
}

// ---- stops

TEST_F(Decisions, TakesAHostThatRefusesAWorkerForNoCrash) {
  start_and_serve();
  (void)end(kKilled);
  for (int i = 0; i < 20; ++i) {
    start();
    EXPECT_EQ(end(exited(kExitHost)), Outcome::kRefusedByHost);
    EXPECT_LE(core_.rest_of_pause(now_), Core::kRetryOfHost);
    EXPECT_EQ(core_.responding(), i >= 2) << "nobody waits for a disk that may never be well again";
    now_ += core_.rest_of_pause(now_);
  }
  EXPECT_FALSE(core_.safe_mode());
  start_and_serve();
  EXPECT_FALSE(core_.responding());
  (void)end(kKilled);
  EXPECT_FALSE(core_.safe_mode());
  start();
  (void)end(exited(kExitHost));
  EXPECT_FALSE(core_.responding()) << "another series";
}

TEST_F(Decisions, TakesBackNoUpgradeBecauseOfTheHost) {
  start_and_serve();
  ASSERT_TRUE(core_.asked_to_upgrade(now_, signs_));
  ASSERT_EQ(end(exited(kExitHandOver)), Outcome::kHandedOver);
  start_and_serve();
  for (int i = 0; i < 6; ++i) {
    (void)end(exited(kExitHost));
    now_ += core_.rest_of_pause(now_);
    start();
  }
  EXPECT_EQ(core_.upgrades_taken_back(), 0U);
}

TEST_F(Decisions, StartsAWorkerForAStopThatCameBetweenTwo) {
  start_and_serve();
  for (int i = 0; i < 4; ++i) {
    (void)end(exited(1));
    (void)pause();
    start();
  }
  (void)end(exited(1));
  ASSERT_EQ(next(), Action::kNothing) << "a pause";
  core_.asked_to_stop(now_);
  EXPECT_EQ(core_.stops(), 1U);
  start();
  serve();
  EXPECT_EQ(end(exited(0)), Outcome::kEnded);
}

TEST_F(Decisions, EndsItselfWhenNoWorkerCanStop) {
  start_and_serve();
  core_.asked_to_stop(now_);
  for (int i = 0; i < 2; ++i) {
    (void)end(exited(1));
    if (next() != Action::kStart) break;
    signs_ = {};
    core_.started(now_);
  }
  (void)end(exited(1));
  EXPECT_EQ(next(), Action::kEnd);
  EXPECT_EQ(core_.exit_code(), 1);
}

TEST_F(Decisions, EndsWhenTheKernelHasEndedTheSession) {
  start_and_serve();
  (void)end(kKilled);
  core_.session_ended();
  EXPECT_EQ(next(), Action::kEnd);
  EXPECT_EQ(core_.exit_code(), 0);
}

TEST_F(Decisions, RestsNoLongerThanItMay) {
  EXPECT_EQ(core_.rest(now_), 0);
  start();
  EXPECT_LE(core_.rest(now_), 100);
  serve();
  EXPECT_LE(core_.rest(now_), 5'000);
  ASSERT_TRUE(core_.asked_to_upgrade(now_, signs_));
  now_ += 9'990;
  EXPECT_LE(core_.rest(now_), 10);
}

}  // namespace
}  // namespace inductorfs::supervisor
