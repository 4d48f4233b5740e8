// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/ledger/ledger.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>

#include "inductorfs/config/json.h"
#include "support/fake_clock.h"

namespace inductorfs::ledger {
namespace {

using config::Json;

constexpr Milliseconds kPatience{20'000};

std::string code(int number) {
  std::string name = std::string(47, 'b') + "aaaa";
  for (size_t at = name.size(); number > 0; number /= 26) name[--at] = static_cast<char>('a' + number % 26);
  return "bb/c" + name + ".py";
}

class LedgerTest : public ::testing::Test {
 protected:
  LedgerTest() { ledger_.start(); }
  void note(vfs::UseKind use, const std::string& path, pid_t thread = ::getpid()) {
    vfs::UseNotice notice;
    notice.use = use;
    notice.thread = thread;
    notice.path = path;
    ledger_.note(std::move(notice));
  }
  /// This test is no interpreter: it is told to be a job.
  static LedgerOptions options() {
    LedgerOptions options;
    options.runs_torch = [](pid_t) { return true; };
    return options;
  }
  Ledger ledger_{options()};
};

TEST_F(LedgerTest, CountsWhatManyThreadsSay) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this, i] {
      for (int one = 0; one < 100; ++one) note(vfs::UseKind::kNothing, code(i * 100 + one));
    });
  }
  threads.clear();
  note(vfs::UseKind::kMade, code(7));
  ledger_.note_published({code(7)});
  ASSERT_TRUE(ledger_.settle(Deadline::after(kPatience)));
  const Json all = ledger_.stats(std::nullopt).at("all");
  EXPECT_EQ(all.at("missed"), 400);
  EXPECT_EQ(all.at("made"), 1);
  EXPECT_EQ(all.at("published"), 1);
  const Json jobs = ledger_.jobs(std::nullopt);
  ASSERT_EQ(jobs.size(), 1U);
  EXPECT_EQ(jobs.at(0).at("missed"), 400);
  EXPECT_EQ(jobs.at(0).at("ended"), "");
}

TEST_F(LedgerTest, ShowsAUserHisOwnJobsOnly) {
  note(vfs::UseKind::kNothing, code(1));
  note(vfs::UseKind::kNothing, code(2), 0);
  ASSERT_TRUE(ledger_.settle(Deadline::after(kPatience)));
  EXPECT_EQ(ledger_.jobs(std::nullopt).size(), 2U);
  EXPECT_EQ(ledger_.jobs(::getuid()).size(), 1U) << "nobody's, and hidden, is the other";
  EXPECT_EQ(ledger_.jobs(::getuid() + 1).size(), 0U);
  EXPECT_FALSE(ledger_.misses(0, ::getuid() + 1).contains("misses"));
  EXPECT_FALSE(ledger_.misses(99, std::nullopt).contains("misses"));
  EXPECT_EQ(ledger_.misses(0, ::getuid()).at("misses").at(0).at("path"), code(1));
}

TEST(Ledger, CountsNothingOfProgramsWithoutTorch) {
  testing::FakeClock clock;
  LedgerOptions options{.clock = clock};
  std::atomic<bool> runs_torch = false;
  options.runs_torch = [&runs_torch](pid_t) { return std::optional(runs_torch.load()); };
  Counters counters;
  options.counters = &counters;
  Ledger ledger{options};
  ledger.start();
  const auto asks = [&ledger](int number) {
    vfs::UseNotice notice;
    notice.thread = ::getpid();
    notice.path = code(number);
    ledger.note(std::move(notice));
    ASSERT_TRUE(ledger.settle(Deadline::after(kPatience)));
  };
  asks(1);
  EXPECT_EQ(ledger.stats(std::nullopt).at("all").at("asked"), 0);
  EXPECT_TRUE(ledger.jobs(std::nullopt).empty());
  EXPECT_EQ(counters.get("keys.asked").get(), 0U);
  runs_torch = true;
  clock.advance(Milliseconds(1'001));  // a thread's process is looked at once a second
  asks(2);
  EXPECT_EQ(ledger.stats(std::nullopt).at("all").at("asked"), 1);
  EXPECT_EQ(ledger.stats(std::nullopt).at("users").at(0).at("user"), ::getuid());
  EXPECT_TRUE(ledger.stats(::getuid() + 1).at("users").empty());
}

TEST(Ledger, DropsAndCountsWhatItCannotTake) {
  Ledger ledger{LedgerOptions{}};  // it has no thread yet
  for (size_t i = 0; i < Ledger::kMostWaiting + 3; ++i) ledger.note({});
  EXPECT_EQ(ledger.stats(std::nullopt).at("dropped"), 3);
  EXPECT_FALSE(ledger.settle(Deadline::after(Milliseconds(1))));
}

TEST(Ledger, EndsAtOnce) {
  Ledger ledger{LedgerOptions{}};
  ledger.start();
  ledger.stop();
  ledger.stop();
  ledger.note({});
  EXPECT_TRUE(ledger.settle(Deadline::after(kPatience))) << "nobody waits for a ledger that has ended";
}

TEST_F(LedgerTest, HasEachMissExplainedAndEndsWhoWaitsForQuestions) {
  note(vfs::UseKind::kNothing, code(1));
  ASSERT_TRUE(ledger_.settle(Deadline::after(kPatience)));
  EXPECT_FALSE(ledger_.settle_questions(Deadline::after(Milliseconds(1)))) << "nobody has explained it yet";
  const std::vector<MissQuestion> asked = ledger_.await_questions();
  ASSERT_EQ(asked.size(), 1U);
  EXPECT_EQ(asked.front().path, code(1));
  ledger_.note_explained(asked.front(), {{"reason", "first"}, {"text", std::string(10'000, 'x')}});
  EXPECT_TRUE(ledger_.settle_questions(Deadline::after(kPatience)));
  EXPECT_EQ(ledger_.misses(0, std::nullopt).at("misses").at(0).at("reason"), "nothing") << "too much of it";
  ledger_.note_explained(asked.front(), {{"reason", "first"}, {"nearest", {{"lines", std::string(10'000, 'x')}}}});
  const Json report = ledger_.misses(0, std::nullopt);
  EXPECT_EQ(report.at("misses").at(0).at("reason"), "first");
  EXPECT_TRUE(report.at("misses").at(0).at("nearest").empty());
  std::jthread waits([this] { EXPECT_TRUE(ledger_.await_questions().empty()); });
  ledger_.stop_asking();
}

}  // namespace
}  // namespace inductorfs::ledger
