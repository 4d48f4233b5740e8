// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "fingerprint/facts/facts.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/guarded.h"
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
constexpr Facet kLearned[] = {Facet::kTorch,  Facet::kTriton, Facet::kEngine,
                              Facet::kPython, Facet::kLibc,   Facet::kEnvironment};
const std::string kFusion = "TRITON_DEFAULT_FP_FUSION";

class JobsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    INDUCTORFS_NEEDS_OWN_PROC();
    writers_ = testing::open_patient_writers(testing::writers_options(), counters_);
  }
  JobFacts job_of(pid_t pid) { return writers_->job_of(pid, {true, kPatience}); }
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
  Program program({{kFusion, "0"}, {"HOME", "/root"}, {"PATH", "/usr/bin:/bin"}});
  site_.load_torch(program);
  const JobFacts job = job_of(program);
  expect_equal(job, facts_of(site_, {{kFusion, "0"}}));
  EXPECT_FALSE(job.facts.has(Facet::kCompiler)) << "the host's counts";
}

/// No library, no __init__.py and no .dist-info changes: as a developer edits, and starts the engine again at once.
TEST_F(JobsTest, HaveWhatTheirPackagesWereWhenTheyBegan) {
  site_.install_vllm("AAA");
  const std::string& site = temporary_.path() + "/site";
  for (const char* edited : {"/torch/a.py", "/triton/language/core.py", "/vllm/ops.py"}) {
    write_text(site + edited, "before");
    Program program;
    site_.load_torch(program);
    const JobFacts before = job_of(program);
    ASSERT_EQ(before.kind, JobFacts::Kind::kKnown) << before.why;
    Counter& reads = counters_.get("writers.package_reads");
    write_text(site + edited, "edited");
    Program next;
    site_.load_torch(next);
    const uint64_t begun = reads.get();
    const JobFacts after = job_of(next);
    ASSERT_EQ(after.kind, JobFacts::Kind::kKnown) << after.why;
    EXPECT_GT(reads.get(), begun) << "each process is told what was read since it began";
    const auto text_of = [](const JobFacts& job) {
      return job.facts.get(Facet::kTorch).value + job.facts.get(Facet::kTriton).value +
             job.facts.get(Facet::kEngine).value;
    };
    EXPECT_NE(text_of(after), text_of(before)) << edited;
    EXPECT_EQ(text_of(job_of(program)), text_of(before)) << "and keeps it";
  }
}

TEST_F(JobsTest, SayTheSameOfAnEqualInstallationAtAnotherPath) {
  const Site other(temporary_ / "other");
  Program program;
  other.load_torch(program);
  expect_equal(job_of(program), facts_of(site_));
}

TEST_F(JobsTest, HaveTheEngineBesideTheirTorch) {
  site_.install_vllm("AAA");
  Program program;
  site_.load_torch(program);
  const JobFacts job = job_of(program);
  expect_equal(job, facts_of(site_));
  EXPECT_TRUE(job.facts.get(Facet::kEngine).value.starts_with("vllm=0.32.0 "));
}

/// All else of such a job is shared as ever.
TEST_F(JobsTest, AreKnownWithoutAnEngineThatCannotBeRead) {
  write_text(temporary_ / "site/vllm.py", "");
  Program program;
  site_.load_torch(program);
  const JobFacts job = job_of(program);
  ASSERT_EQ(job.kind, JobFacts::Kind::kKnown) << job.why;
  EXPECT_TRUE(job.facts.get(Facet::kTorch).known);
  EXPECT_FALSE(job.facts.get(Facet::kEngine).known);
}

TEST_F(JobsTest, LookAgainBeforeTheySayThatAProgramHasNothingLoaded) {
  Program program;
  for (int request = 0; request < 3; ++request) EXPECT_EQ(job_of(program).kind, JobFacts::Kind::kNeither);
  writers_->expect(program.pid());
  site_.load_torch(program);
  EXPECT_EQ(job_of(program).kind, JobFacts::Kind::kKnown) << "however short the time since the last look";
}

/// cp, find, rsync: each of their lookups read the whole of /proc/PID/maps.
TEST_F(JobsTest, RememberAProgramWithoutTorchUntilItMapsMore) {
  Program program;
  ASSERT_EQ(job_of(program).kind, JobFacts::Kind::kNeither);
  Counter& looks = counters_.get("writers.scanned");
  const uint64_t looked = looks.get();
  for (int request = 0; request < 1000; ++request) ASSERT_EQ(job_of(program).kind, JobFacts::Kind::kNeither);
  EXPECT_LT(looks.get(), looked + 500) << "this program's ancestors may map more meanwhile";
  const pid_t child = program.start("spawn");
  ASSERT_EQ(job_of(child).kind, JobFacts::Kind::kNeither);
  site_.load_torch(program);
  EXPECT_EQ(job_of(child).kind, JobFacts::Kind::kKnown) << "what has started it has torch now";
  EXPECT_EQ(job_of(program).kind, JobFacts::Kind::kKnown);
}

TEST_F(JobsTest, ReadWhatIsExpectedBeforeItIsAskedFor) {
  Program program;
  site_.load_torch(program);
  writers_->expect(program.pid());
  Counter& reads = counters_.get("writers.package_reads");
  const uint64_t begun = reads.get();
  EXPECT_GT(begun, 0U);
  expect_equal(job_of(program), facts_of(site_));
  EXPECT_EQ(reads.get(), begun) << "nothing is read twice";
}

TEST_F(JobsTest, TellOfACompilerWhatTheyTellOfItsJob) {
  Program program;
  site_.load_torch(program);
  expect_equal(job_of(program.start("spawn")), facts_of(site_));
  expect_equal(job_of(program.start("thread")), facts_of(site_));
}

TEST_F(JobsTest, LookAtTheCompilerThatTorchWouldRun) {
  const std::string script = temporary_ / "bin/g++";
  testing::write_script(script, "exec /usr/bin/g++ \"$@\"");
  Program by_path({{"PATH", (temporary_ / "bin") + ":/usr/bin"}});
  site_.load_torch(by_path);
  const JobFacts job = job_of(by_path);
  expect_equal(job, facts_of(site_));
  ASSERT_TRUE(job.facts.has(Facet::kCompiler)) << "another than the host's";
  const Fact& fact = job.facts.get(Facet::kCompiler);
  EXPECT_FALSE(fact.known) << fact.value;
  EXPECT_NE(fact.problem.find(script + " is no program but a script"), std::string::npos) << fact.problem;
  Program by_name(Environment{{"CXX", "no-such-compiler"}});
  site_.load_torch(by_name);
  EXPECT_FALSE(job_of(by_name).facts.get(Facet::kCompiler).known);
}

TEST_F(JobsTest, GiveAWorkerWithAnotherCompilerItsOwnAnswer) {
  Program program(Environment{{"PATH", "/usr/bin:/bin"}});
  site_.load_torch(program);
  EXPECT_FALSE(job_of(program).facts.has(Facet::kCompiler));
  program.tell("set CXX no-such-compiler");
  const pid_t worker = program.start("fork");
  program.tell("unset CXX");
  EXPECT_TRUE(job_of(worker).facts.has(Facet::kCompiler));
}

TEST_F(JobsTest, ForgetThatAProcessHasNoPackage) {
  Program program;
  EXPECT_EQ(job_of(program).kind, JobFacts::Kind::kNeither);
  site_.load_torch(program);
  testing::OptionsOfTests options = testing::writers_options();
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

/// Packages whose reader waits until let_go().
class SlowPackages {
 public:
  SlowPackages(const TemporaryDirectory& directory, testing::OptionsOfTests& options) : gate_(directory / "gate") {
    EXPECT_EQ(::mkfifo(gate_.c_str(), 0600), 0);
    options.package_reader = directory / "reader";
    // Reading it ends with the last writer, which is this process.
    testing::write_script(options.package_reader,
                          "test -p " + gate_ + " && cat < " + gate_ + "; exec " PACKAGE_READER_PATH " \"$@\"");
    writer_ = Fd(::open(gate_.c_str(), O_RDWR | O_CLOEXEC));
    EXPECT_TRUE(writer_);
  }
  void let_go() {
    EXPECT_EQ(::unlink(gate_.c_str()), 0);  // first, or a reader that comes later would wait for a writer
    writer_.reset();
  }

 private:
  const std::string gate_;
  Fd writer_;
};

/// Names environments by numbers.
class NumberedEnvironments final : public JobEnvironments {
 public:
  [[nodiscard]] std::string take(const Fingerprint& facts, uid_t, const std::function<InUse()>& in_use) override {
    used = in_use();
    if (is_full) return {};
    const std::string text = facts.to_json();
    return all.with([&](auto& known) {
      const auto found = std::ranges::find(known, text);
      if (found == known.end()) known.push_back(text);
      return "n" + std::to_string(std::ranges::find(known, text) - known.begin());
    });
  }
  [[nodiscard]] std::optional<Fingerprint> find(std::string_view name) const override {
    return all.with([&](const auto& known) -> std::optional<Fingerprint> {
      for (size_t number = 0; number < known.size(); ++number) {
        if (name == "n" + std::to_string(number)) return Fingerprint::from_json(known[number]).value();
      }
      return std::nullopt;
    });
  }
  Guarded<std::vector<std::string>> all;
  InUse used;
  bool is_full = false;
};

class JobsOfWorkersTest : public JobsTest {
 protected:
  void SetUp() override {
    INDUCTORFS_NEEDS_OWN_PROC();
    next_worker();
  }
  void next_worker() {
    options_.environments = &environments_;
    options_.jobs_file = temporary_ / "processes";
    writers_ = testing::open_patient_writers(options_, counters_);
  }
  NumberedEnvironments environments_;
  testing::OptionsOfTests options_ = testing::writers_options();
};

TEST_F(JobsOfWorkersTest, KeepTheAnswerOverTheNextWorker) {
  Program program;
  site_.load_torch(program);
  expect_equal(job_of(program), facts_of(site_));
  program.tell("set " + kFusion + " 0");
  for (int worker = 0; worker < 2; ++worker) {
    next_worker();
    expect_equal(job_of(program), facts_of(site_));
    expect_equal(job_of(program.start("thread")), facts_of(site_));
  }
}

TEST_F(JobsOfWorkersTest, GiveAWorkerTheAnswerThatItsParentHadBefore) {
  Program program;
  site_.load_torch(program);
  expect_equal(job_of(program), facts_of(site_));
  program.tell("set " + kFusion + " 0");
  next_worker();
  const pid_t child = program.start("fork");
  expect_equal(job_of(child), facts_of(site_));
  next_worker();
  expect_equal(job_of(child), facts_of(site_));
}

TEST_F(JobsOfWorkersTest, LearnAnewWhatRunsAnotherProgramSince) {
  Program program;
  site_.load_torch(program);
  expect_equal(job_of(program), facts_of(site_));
  program.tell("set " + kFusion + " 0");
  program.tell("exec", "ready");
  site_.load_torch(program);
  next_worker();
  expect_equal(job_of(program), facts_of(site_, {{kFusion, "0"}}));
}

TEST_F(JobsOfWorkersTest, LearnAnewWhoseEnvironmentIsNotKept) {
  Program program;
  site_.load_torch(program);
  expect_equal(job_of(program), facts_of(site_));
  program.tell("set " + kFusion + " 0");
  environments_.all.with([](auto& known) { known.clear(); });
  next_worker();
  expect_equal(job_of(program), facts_of(site_, {{kFusion, "0"}}));
}

TEST_F(JobsOfWorkersTest, StayUnknownOverTheNextWorker) {
  Program program;
  site_.load_torch(program);
  environments_.is_full = true;
  EXPECT_EQ(job_of(program).kind, JobFacts::Kind::kUnknown) << "no room for its environment";
  environments_.is_full = false;
  next_worker();
  EXPECT_EQ(job_of(program).kind, JobFacts::Kind::kUnknown);
  ASSERT_EQ(writers_->unknown_jobs().size(), 1U);
  EXPECT_EQ(writers_->unknown_jobs()[0].user, ::geteuid());
}

TEST_F(JobsOfWorkersTest, NameTheEnvironmentsOfLivingProcesses) {
  Program one;
  Program two({{kFusion, "0"}});
  site_.load_torch(one);
  site_.load_torch(two);
  expect_equal(job_of(one), facts_of(site_));
  expect_equal(job_of(two), facts_of(site_, {{kFusion, "0"}}));
  EXPECT_EQ(writers_->environments_in_use(), (JobEnvironments::InUse{{"n0", {::geteuid()}}, {"n1", {::geteuid()}}}));
  EXPECT_EQ(environments_.used, (JobEnvironments::InUse{{"n0", {::geteuid()}}})) << "before the second had its name";
  one.end();
  EXPECT_EQ(writers_->environments_in_use(), (JobEnvironments::InUse{{"n1", {::geteuid()}}}));
}

class SlowJobsTest : public JobsTest {
 protected:
  void SetUp() override {
    INDUCTORFS_NEEDS_OWN_PROC();
    writers_ = testing::open_patient_writers(options_, counters_);
  }
  [[nodiscard]] JobFacts look(pid_t pid, Milliseconds patience) {
    return writers_->job_of(pid, {false, patience, [this] { ++turns_; }});
  }
  testing::OptionsOfTests options_ = testing::writers_options();
  SlowPackages packages_{temporary_, options_};
  std::atomic<int> turns_{0};
};

TEST_F(SlowJobsTest, AreKnownLaterWhenNothingWasMadeBefore) {
  Program program;
  site_.load_torch(program);
  const JobFacts job = look(program.pid(), Milliseconds{3'000});
  EXPECT_EQ(job.kind, JobFacts::Kind::kLater);
  EXPECT_NE(job.why.find("not read in time"), std::string::npos) << job.why;
  EXPECT_GE(turns_, 2) << "it says that it goes on";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(look(program.pid(), kPatience).kind, JobFacts::Kind::kLater);
  EXPECT_LT(std::chrono::steady_clock::now() - start, kPatience) << "all lookups of a process wait together";
  ASSERT_EQ(writers_->unknown_jobs().size(), 1U);
  EXPECT_EQ(writers_->unknown_jobs()[0].processes, 1U);
  packages_.let_go();
  expect_equal(job_of(program), facts_of(site_));
  EXPECT_TRUE(writers_->unknown_jobs().empty());
}

TEST_F(SlowJobsTest, StayUnknownWhenSomethingWasMadeBefore) {
  Program program;
  site_.load_torch(program);
  EXPECT_EQ(look(program.pid(), Milliseconds{1}).kind, JobFacts::Kind::kLater);
  const pid_t child = program.start("fork");
  EXPECT_EQ(look(child, Milliseconds{1}).kind, JobFacts::Kind::kLater);
  EXPECT_EQ(writers_->job_of(child, {true, Milliseconds{300}}).kind, JobFacts::Kind::kUnknown);
  packages_.let_go();
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(job_of(child).kind, JobFacts::Kind::kUnknown) << "for good";
  EXPECT_EQ(job_of(program).kind, JobFacts::Kind::kUnknown) << "its parent has to find what it made";
  EXPECT_EQ(job_of(program.start("fork")).kind, JobFacts::Kind::kUnknown) << "and the other children";
  EXPECT_LT(std::chrono::steady_clock::now() - start, kPatience) << "without a wait";
}

TEST_F(SlowJobsTest, DoNotWaitWhenTooManyOfTheirUserDo) {
  constexpr size_t kMany = 20;
  std::vector<std::unique_ptr<Program>> programs;
  for (size_t number = 0; number < kMany; ++number) {
    programs.push_back(std::make_unique<Program>());
    site_.load_torch(*programs.back());
  }
  Guarded<size_t> later{0};
  std::vector<std::jthread> threads;
  for (const auto& program : programs) {
    threads.emplace_back([&, pid = program->pid()] {
      const bool is_later = look(pid, kPatience).kind == JobFacts::Kind::kLater;
      later.notify_with([&](size_t& count) { count += is_later ? 1 : 0; });
    });
  }
  const auto have_all = [](size_t count) { return count >= kMany - 16; };
  EXPECT_TRUE(later.wait_until(std::chrono::steady_clock::now() + kPatience / 2, have_all, have_all));
  packages_.let_go();
  threads.clear();
  EXPECT_EQ(later.with([](size_t count) { return count; }), kMany - 16) << "16 have waited";
  for (const auto& program : programs) expect_equal(job_of(*program), facts_of(site_));
}

TEST_F(JobsTest, HaveAnotherAnswerWhenTorchIsThere) {
  testing::OptionsOfTests options = testing::writers_options();
  options.environment_age = Milliseconds{0};
  writers_ = testing::open_patient_writers(options, counters_);
  Program program;
  program.tell("map " + site_.libtriton());
  const JobFacts before = job_of(program);
  ASSERT_EQ(before.kind, JobFacts::Kind::kKnown) << before.why;
  EXPECT_FALSE(before.facts.get(Facet::kTorch).known);
  program.tell("set " + kFusion + " 0");
  EXPECT_TRUE(job_of(program).facts.get(Facet::kEnvironment).is_none()) << "the answer stays until then";
  site_.load_torch(program);
  expect_equal(job_of(program), facts_of(site_, {{kFusion, "0"}}));
  program.tell("unset " + kFusion);
  expect_equal(job_of(program), facts_of(site_, {{kFusion, "0"}}));
  expect_equal(job_of(program.start("fork")), facts_of(site_, {{kFusion, "0"}}));
}

TEST_F(JobsTest, RememberALimitedNumberOfProcesses) {
  testing::OptionsOfTests options = testing::writers_options();
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
