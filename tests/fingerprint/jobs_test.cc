// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdio>
#include <filesystem>

#include "fingerprint/facts.h"
#include "support/patience.h"
#include "writers_fixture.h"

namespace inductorfs::fingerprint {
namespace {

using inductorfs::testing::kSlowness;
using inductorfs::testing::TemporaryDirectory;
using testing::Environment;
using testing::facts_of;
using testing::Program;
using testing::Site;
using testing::write_text;
namespace fs = std::filesystem;

constexpr Milliseconds kPatience{20'000 * kSlowness};
constexpr Facet kLearned[] = {Facet::kTorch, Facet::kTriton, Facet::kPython, Facet::kLibc, Facet::kEnvironment};
const std::string kFusion = "TRITON_DEFAULT_FP_FUSION";

class JobsTest : public ::testing::Test {
 protected:
  void SetUp() override { writers_ = testing::open_patient_writers(testing::writers_options(), counters_); }
  JobFacts job_of(pid_t pid) { return writers_->job_of(pid, kPatience); }
  JobFacts job_of(const Program& program) { return job_of(program.pid()); }
  static void expect_equal(const JobFacts& job, const Fingerprint& expected) {
    ASSERT_EQ(job.kind, JobFacts::Kind::kKnown) << job.why;
    for (const Facet facet : kLearned) {
      EXPECT_TRUE(job.facts.get(facet).known) << to_string(facet) << ": " << job.facts.get(facet).problem;
      EXPECT_EQ(job.facts.get(facet).value, expected.get(facet).value) << to_string(facet);
    }
  }

  TemporaryDirectory temporary_;
  Site site_{temporary_ / "site"};
  Counters counters_;
  std::unique_ptr<Writers> writers_;
};

TEST_F(JobsTest, StatesTheFactsAsTheProbeWould) {
  Program program({{kFusion, "0"}, {"HOME", "/root"}});
  site_.load_torch(program);
  const JobFacts job = job_of(program);
  expect_equal(job, facts_of(site_, {{kFusion, "0"}}));
  EXPECT_FALSE(job.facts.has(Facet::kCompiler)) << "the host's counts";
}

TEST_F(JobsTest, SayTheSameOfAnEqualInstallationAtAnotherPath) {
  const Site other(temporary_ / "other");
  Program program;
  other.load_torch(program);
  expect_equal(job_of(program), facts_of(site_));
}

TEST_F(JobsTest, TellOfACompilerWhatTheyTellOfItsJob) {
  Program program;
  site_.load_torch(program);
  expect_equal(job_of(program.start("spawn")), facts_of(site_));
  expect_equal(job_of(program.start("thread")), facts_of(site_));
}

TEST_F(JobsTest, ForgetThatAProcessHasNoPackage) {
  Program program;
  EXPECT_EQ(job_of(program).kind, JobFacts::Kind::kNeither);
  site_.load_torch(program);
  WritersOptions options = testing::writers_options();
  options.environment_age = Milliseconds{0};
  writers_ = testing::open_patient_writers(options, counters_);
  expect_equal(job_of(program), facts_of(site_));
}

TEST_F(JobsTest, KeepTheFirstAnswerWhateverTheProcessSets) {
  Program program;
  site_.load_torch(program);
  expect_equal(job_of(program), facts_of(site_));
  program.tell("set " + kFusion + " 0");
  expect_equal(job_of(program), facts_of(site_));
}

TEST_F(JobsTest, GiveAWorkerTheAnswerOfItsParent) {
  Program program;
  site_.load_torch(program);
  expect_equal(job_of(program), facts_of(site_));
  program.tell("set " + kFusion + " 0");
  expect_equal(job_of(program.start("fork")), facts_of(site_));
}

TEST_F(JobsTest, DoNotKnowWhoCannotBeSeen) {
  for (const pid_t pid : {0, -1, 1 << 30}) {
    const JobFacts job = job_of(pid);
    EXPECT_EQ(job.kind, JobFacts::Kind::kUnknown);
    EXPECT_FALSE(job.why.empty());
  }
}

TEST_F(JobsTest, DoNotKnowATorchThatWasReplaced) {
  Program program;
  site_.load_torch(program);
  fs::remove(site_.libtorch());
  const JobFacts job = job_of(program);
  EXPECT_EQ(job.kind, JobFacts::Kind::kUnknown);
  EXPECT_NE(job.why.find("was replaced"), std::string::npos) << job.why;
}

TEST_F(JobsTest, StayUnknownWhenAPackageWasNotReadInTime) {
  WritersOptions options = testing::writers_options();
  options.package_reader = temporary_ / "reader";
  testing::write_script(options.package_reader, "read line < " + temporary_.path() + "/fifo");
  ASSERT_EQ(::mkfifo((temporary_ / "fifo").c_str(), 0600), 0);
  options.package_deadline = Milliseconds{2'000};
  writers_ = testing::open_patient_writers(options, counters_);
  Program program;
  site_.load_torch(program);
  const JobFacts job = writers_->job_of(program.pid(), Milliseconds{50});
  EXPECT_EQ(job.kind, JobFacts::Kind::kUnknown);
  EXPECT_NE(job.why.find("not read in time"), std::string::npos) << job.why;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(job_of(program).kind, JobFacts::Kind::kUnknown) << "for good";
  EXPECT_EQ(job_of(program.start("fork")).kind, JobFacts::Kind::kUnknown) << "its worker too";
  EXPECT_LT(std::chrono::steady_clock::now() - start, kPatience) << "without a wait";
}

TEST_F(JobsTest, RememberALimitedNumberOfProcesses) {
  WritersOptions options = testing::writers_options();
  options.process_limit = 1;
  writers_ = testing::open_patient_writers(options, counters_);
  Program one;
  Program two;
  site_.load_torch(one);
  site_.load_torch(two);
  expect_equal(job_of(one), facts_of(site_));
  expect_equal(job_of(two), facts_of(site_));
  one.tell("set " + kFusion + " 0");
  expect_equal(job_of(one), facts_of(site_, {{kFusion, "0"}}));
}

/// What a job waits for; printed, and held only against a thousandfold slip.
TEST_F(JobsTest, AreCheapOnceTheyAreKnown) {
  Program program;
  site_.load_torch(program);
  using Clock = std::chrono::steady_clock;
  const auto microseconds = [&](pid_t pid, int rounds) {
    const auto start = Clock::now();
    for (int i = 0; i < rounds; ++i) EXPECT_EQ(job_of(pid).kind, JobFacts::Kind::kKnown);
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count() / rounds;
  };
  std::printf("job, packages never seen:  %8.1f us\n", microseconds(program.pid(), 1));
  const double known = microseconds(program.pid(), 500);
  std::printf("job, known:                %8.1f us\n", known);
  Program other;
  site_.load_torch(other);
  std::printf("job, packages known:       %8.1f us\n", microseconds(other.pid(), 1));
  EXPECT_LT(known, 50'000.0);
}

}  // namespace
}  // namespace inductorfs::fingerprint
