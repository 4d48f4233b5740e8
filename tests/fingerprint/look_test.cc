// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/processes/look.h"

#include <gtest/gtest.h>

#include <thread>

#include "fingerprint/jobs/sight.h"
#include "stuck_proc.h"
#include "support/patience.h"
#include "writers_fixture.h"

namespace inductorfs::fingerprint {
namespace {

using inductorfs::testing::TemporaryDirectory;
using testing::judge_to_the_end;
using testing::Program;
using testing::Site;
using testing::write_text;

constexpr Milliseconds kWait{50};
constexpr pid_t kStuck = testing::StuckProc::kStuck;

class LookTest : public ::testing::Test {
 protected:
  void SetUp() override { INDUCTORFS_NEEDS_OWN_PROC(); }
  [[nodiscard]] std::string maps_of_torch() const {
    const auto line = [](const std::string& path) { return "1000-2000 r--p 00000000 fe:00 1    " + path + "\n"; };
    return line(site_.libtorch()) + line(site_.torch() + "/_C." + testing::kSoabi + ".so");
  }
  std::unique_ptr<testing::WritersOfMount> open(const testing::OptionsOfTests& options) {
    WritersOptions with = options;
    with.examiner = std::make_shared<const ExaminerLink>(testing::examiner_for(options), [] {});
    return std::make_unique<testing::WritersOfMount>(open_writers_that_wait(with, counters_, kWait),
                                                     testing::facts_of(site_));
  }
  [[nodiscard]] testing::OptionsOfTests options() const {
    testing::OptionsOfTests result = testing::writers_options();
    result.proc = proc_.path();
    return result;
  }

  TemporaryDirectory temporary_;
  testing::StuckProc proc_{temporary_ / "proc"};
  Site site_{temporary_ / "site"};
  Counters counters_;
};

constexpr Facet kFacets[] = {Facet::kTorch, Facet::kTriton, Facet::kPython};

TEST_F(LookTest, DoesNotWaitForAProcessWhoseMemoryMapIsLocked) {
  const auto writers = open(options());
  const auto writer = writers->identify(kStuck);
  ASSERT_TRUE(writer);
  EXPECT_EQ(writers->glance(writer.get(), kFacets).match, Match::kLater);
  EXPECT_EQ(writers->judge(writer.get(), kFacets).match, Match::kLater);
  EXPECT_EQ(counters_.get("writers.late_looks").get(), 1U);

  // Its request has been answered; who looks is a process that may just have been begun.
  const Deadline deadline = Deadline::after(std::chrono::seconds(20) * inductorfs::testing::kSlowness);
  while (!proc_.unlock(maps_of_torch()) && !deadline.passed()) std::this_thread::yield();

  const Judgement judgement = judge_to_the_end(*writers, writer.get(), kFacets);
  EXPECT_EQ(judgement.match, Match::kMatches) << judgement.why;
}

TEST_F(LookTest, WaitsOnceForAUserWhoseProcessIsStuck) {
  proc_.add(8);
  write_text(proc_.path() + "/8/maps", maps_of_torch());
  const auto writers = open(options());
  const auto stuck = writers->identify(kStuck);
  const auto begin = system_clock().now();
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(writers->identify(kStuck));
  EXPECT_LT(system_clock().now() - begin, kWait * 100 / 2) << "each further request waits for nothing";
  const auto other = writers->identify(8);
  ASSERT_TRUE(other);
  const Judgement judgement = judge_to_the_end(*writers, other.get(), kFacets);
  EXPECT_EQ(judgement.match, Match::kMatches) << judgement.why;
}

TEST_F(LookTest, GivesUpAtTheDeadline) {
  testing::OptionsOfTests impatient = options();
  impatient.package_deadline = Milliseconds{200};
  const auto writers = open(impatient);
  const auto writer = writers->identify(kStuck);
  const Judgement judgement = judge_to_the_end(*writers, writer.get(), kFacets);
  EXPECT_EQ(judgement.match, Match::kUnknown);
  EXPECT_NE(judgement.why.find("could not be looked at within 200 ms"), std::string::npos) << judgement.why;
}

TEST_F(LookTest, EndsWhileALookIsUnderWay) {
  auto writers = open(options());
  const auto writer = writers->identify(kStuck);
  ASSERT_TRUE(writer);
  writers.reset();
}

}  // namespace
}  // namespace inductorfs::fingerprint
