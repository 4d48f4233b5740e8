// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/fingerprint/writers.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "stuck_proc.h"
#include "writers_fixture.h"

namespace inductorfs::fingerprint {
namespace {

using inductorfs::testing::TemporaryDirectory;
using testing::Environment;
using testing::facts_of;
using testing::judge_to_the_end;
using testing::Program;
using testing::Site;
using testing::write_text;

class WritersTest : public ::testing::Test {
 protected:
  void SetUp() override { INDUCTORFS_NEEDS_OWN_PROC(); }
  std::unique_ptr<testing::WritersOfMount> open(testing::OptionsOfTests options = testing::writers_options()) {
    return testing::open_patient_writers(options, facts_of(site_), counters_);
  }
  static testing::OptionsOfTests always_anew() {
    testing::OptionsOfTests options = testing::writers_options();
    options.environment_age = Milliseconds{0};
    return options;
  }
  uint64_t count(std::string_view name) { return counters_.get(name).get(); }

  TemporaryDirectory temporary_;
  Site site_{temporary_ / "site"};
  Counters counters_;
};

TEST_F(WritersTest, SeesWhatAProcessHasMapped) {
  Program program;
  site_.load_torch(program);
  program.tell("map " + site_.libtriton());
  const auto writer = open()->identify(program.pid());
  ASSERT_TRUE(writer);
  const Process& process = writer->process();
  EXPECT_EQ(process.pid, program.pid());
  EXPECT_EQ(process.torch.path, site_.torch());
  EXPECT_EQ(process.triton.path, site_.triton());
  EXPECT_EQ(process.soabi, testing::kSoabi);
  EXPECT_EQ(process.root, "");
  EXPECT_NE(process.libc.path.find("libc"), std::string::npos);
  EXPECT_FALSE(process.torch.replaced);
  EXPECT_TRUE(process.whole);
}

TEST_F(WritersTest, TakesTheTritonBesideATorchThatHasNotLoadedIt) {
  Program program;
  site_.load_torch(program);
  EXPECT_EQ(open()->identify(program.pid())->process().triton.path, site_.triton());
  std::filesystem::remove_all(site_.triton());
  EXPECT_EQ(open()->identify(program.pid())->process().triton.path, "");
}

TEST_F(WritersTest, SeesVariablesThatWereSetAfterTheStart) {
  Program program(Environment{{"TRITON_DEFAULT_FP_FUSION", "0"}, {"PTXAS_OPTIONS", "-O1"}, {"HOME", "/h"}});
  site_.load_torch(program);
  const auto writers = open(always_anew());
  const auto first = writers->identify(program.pid());
  ASSERT_TRUE(first);
  EXPECT_TRUE(first->environment().live);
  EXPECT_EQ(first->environment().values, (Environment{{"TRITON_DEFAULT_FP_FUSION", "0"}, {"PTXAS_OPTIONS", "-O1"}}));

  program.tell("set TRITON_DEFAULT_FP_FUSION 1");
  program.tell("set TRITON_F32_DEFAULT ieee");
  program.tell("unset PTXAS_OPTIONS");
  const auto second = writers->identify(program.pid());
  EXPECT_EQ(second->environment().values,
            (Environment{{"TRITON_DEFAULT_FP_FUSION", "1"}, {"TRITON_F32_DEFAULT", "ieee"}}));
  // A snapshot: what was seen at first stays what it was.
  EXPECT_EQ(first->environment().values.count("PTXAS_OPTIONS"), 1U);

  program.tell("clear");
  EXPECT_TRUE(writers->identify(program.pid())->environment().values.empty());
  EXPECT_EQ(count("writers.start_environment"), 0U);
}

TEST_F(WritersTest, ReadsManyAndLongVariables) {
  const std::string text(60000, 'x');
  Environment environment = {{"PTXAS_OPTIONS", text}, {"CPATH", std::string(5000, 'c')}};
  for (int i = 0; i < 700; ++i)
    environment["VARIABLE_" + std::to_string(i)] = std::string(static_cast<size_t>(i % 300), 'v');
  Program program(environment);
  site_.load_torch(program);
  for (int i = 0; i < 50; ++i) program.tell("set LATE_" + std::to_string(i) + " " + std::string(200, 'l'));
  program.tell("set TRITON_F32_DEFAULT tf32");
  const auto writer = open()->identify(program.pid());
  ASSERT_TRUE(writer);
  EXPECT_TRUE(writer->environment().live);
  EXPECT_EQ(writer->environment().values.size(), 3U);
  EXPECT_EQ(writer->environment().values.at("PTXAS_OPTIONS"), text);
  EXPECT_EQ(writer->environment().values.at("CPATH").size(), 5000U);
  EXPECT_EQ(writer->environment().values.at("TRITON_F32_DEFAULT"), "tf32");
}

TEST_F(WritersTest, KeepsAnEnvironmentForAWhile) {
  Program program;
  site_.load_torch(program);
  testing::OptionsOfTests options = testing::writers_options();
  options.environment_age = std::chrono::hours{1};
  const auto writers = open(options);
  const auto first = writers->identify(program.pid());
  program.tell("set TRITON_F32_DEFAULT ieee");
  EXPECT_EQ(writers->identify(program.pid()), first);
  EXPECT_EQ(count("writers.scanned"), 1U);
}

TEST_F(WritersTest, LooksOnceAtTheFilesOfAProcessThatHasTorch) {
  Program program;
  site_.load_torch(program);
  const auto writers = open(always_anew());
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(writers->identify(program.pid()));
  EXPECT_EQ(count("writers.scanned"), 1U);
}

TEST_F(WritersTest, SeesTorchThatIsLoadedAfterTheFirstWrite) {
  Program program;
  const auto writers = open(always_anew());
  EXPECT_FALSE(writers->identify(program.pid())->process().has_package());
  site_.load_torch(program);
  EXPECT_EQ(writers->identify(program.pid())->process().torch.path, site_.torch());
}

TEST_F(WritersTest, TakesAThreadForItsProcess) {
  Program program;
  site_.load_torch(program);
  const pid_t thread = program.start("thread");
  ASSERT_NE(thread, program.pid());
  const auto writers = open();
  for (int i = 0; i < 2; ++i) {
    const auto writer = writers->identify(thread);
    ASSERT_TRUE(writer);
    EXPECT_EQ(writer->process().pid, program.pid());
  }
  EXPECT_EQ(count("writers.scanned"), 1U);
}

TEST_F(WritersTest, LetsAChildWithoutTorchSpeakForWhatStartedIt) {
  Program program(Environment{{"TRITON_F32_DEFAULT", "ieee"}});
  site_.load_torch(program);
  const pid_t child = program.start("spawn");
  ASSERT_GT(child, 0);
  const auto writer = open()->identify(child);
  ASSERT_TRUE(writer);
  EXPECT_EQ(writer->process().pid, program.pid());
  EXPECT_EQ(writer->environment().values.at("TRITON_F32_DEFAULT"), "ieee");
}

TEST_F(WritersTest, LetsAForkedChildSpeakForItself) {
  Program program;
  site_.load_torch(program);
  const pid_t child = program.start("fork");
  const auto writer = open()->identify(child);
  ASSERT_TRUE(writer);
  EXPECT_EQ(writer->process().pid, child);
  EXPECT_EQ(writer->process().torch.path, site_.torch());
}

TEST_F(WritersTest, LooksAgainAfterAnExec) {
  Program program;
  site_.load_torch(program);
  const auto writers = open();
  EXPECT_TRUE(writers->identify(program.pid())->process().has_package());
  program.tell("exec", "ready");
  const auto after = writers->identify(program.pid());
  ASSERT_TRUE(after);
  EXPECT_FALSE(after->process().has_package()) << "the new program has mapped nothing";
}

/// The memory that it had is still in use.
TEST_F(WritersTest, LooksAgainAfterAnExecOfAChildThatHadItsParentsMemory) {
  Program program;
  site_.load_torch(program);
  const pid_t child = program.start("share");
  ASSERT_GT(child, 0);
  const auto writers = open();
  const auto before = writers->identify(child);
  ASSERT_TRUE(before);
  EXPECT_EQ(before->process().pid, child);
  program.tell("go");
  const auto after = writers->identify(child);
  ASSERT_TRUE(after);
  EXPECT_EQ(after->process().pid, program.pid()) << "the new program has nothing mapped: another speaks for it";
}

/// Another process still has the memory.
TEST_F(WritersTest, IsNotDeceivedForLongByAChildThatKeepsTheMemoryOfAnEarlierProgram) {
  Program program;
  site_.load_torch(program);
  const auto writers = open(always_anew());
  EXPECT_TRUE(writers->identify(program.pid())->process().has_package());
  ASSERT_GT(program.start("share"), 0);
  program.tell("exec", "ready");
  const auto after = writers->identify(program.pid());
  ASSERT_TRUE(after);
  EXPECT_FALSE(after->process().has_package());
  EXPECT_FALSE(writers->identify(program.pid())->process().has_package());
}

TEST_F(WritersTest, HasNothingToSayOfAProcessThatIsGone) {
  Program program;
  site_.load_torch(program);
  const pid_t pid = program.pid();
  const auto writers = open();
  const auto writer = writers->identify(pid);
  program.end();
  EXPECT_EQ(writers->identify(pid), nullptr);
  EXPECT_EQ(writers->identify(0), nullptr) << "a process of another pid namespace";
  EXPECT_EQ(writers->identify(-1), nullptr);
  EXPECT_EQ(count("writers.unseen"), 3U);
  // What was seen of it stays true.
  EXPECT_EQ(writer->process().torch.path, site_.torch());
}

TEST_F(WritersTest, NoticesThatTorchWasReplacedUnderAProcess) {
  Program program;
  site_.load_torch(program);
  std::filesystem::remove(site_.libtorch());
  write_text(site_.libtorch(), "ANOTHER");
  const auto writer = open()->identify(program.pid());
  ASSERT_TRUE(writer);
  EXPECT_TRUE(writer->process().torch.replaced);
}

TEST_F(WritersTest, RemembersAsManyProcessesAsItsLimit) {
  testing::OptionsOfTests options = testing::writers_options();
  options.process_limit = 2;
  const auto writers = open(options);
  std::vector<std::unique_ptr<Program>> programs;
  for (int i = 0; i < 4; ++i) {
    programs.push_back(std::make_unique<Program>());
    site_.load_torch(*programs.back());
    ASSERT_TRUE(writers->identify(programs.back()->pid()));
    EXPECT_LE(count("writers.processes"), 2U);
  }
  EXPECT_EQ(count("writers.scanned"), 4U);
  // The one used last is still there, the first is looked at again.
  ASSERT_TRUE(writers->identify(programs.back()->pid()));
  EXPECT_EQ(count("writers.scanned"), 4U);
  ASSERT_TRUE(writers->identify(programs.front()->pid()));
  EXPECT_EQ(count("writers.scanned"), 5U);
}

/// Each look is a process of the examiner's, and a program has a shell, a batch system and an init above it.
TEST_F(WritersTest, LooksAgainOnlyAtWhatHasMappedMore) {
  const testing::StuckProc proc(temporary_ / "proc");
  constexpr pid_t kShell = 20;
  constexpr pid_t kProgram = 23;
  const auto maps = [&](pid_t pid, const std::string& file) {
    write_text(proc.path() + "/" + std::to_string(pid) + "/maps", "1000-2000 r--p 00000000 fe:00 1    " + file + "\n");
  };
  const auto add = [&](pid_t pid, pid_t parent) {
    proc.add(pid, parent);
    maps(pid, "/lib/libz.so.1");
  };
  for (pid_t pid = kShell; pid <= kProgram; ++pid) add(pid, pid - 1);
  proc.add(kShell - 1);  // it cannot be examined: its maps are not there
  testing::OptionsOfTests options = testing::writers_options();
  options.proc = proc.path();
  options.environment_age = std::chrono::hours(1);
  const auto writers = open(options);
  const auto kind_of = [&](pid_t pid) { return writers->job_of(pid, std::chrono::seconds(20)).kind; };
  ASSERT_EQ(kind_of(kProgram), JobFacts::Kind::kNeither);
  EXPECT_EQ(count("writers.scanned"), 5U) << "at the program, and at each that has started it";
  for (uint64_t pages = 1; pages <= 3; ++pages) {
    proc.set_size(kProgram, kProgram - 1, pages * 4096);
    ASSERT_EQ(kind_of(kProgram), JobFacts::Kind::kNeither);
    EXPECT_EQ(count("writers.scanned"), 5U + pages);
  }
  add(kProgram + 1, kShell);
  ASSERT_EQ(kind_of(kProgram + 1), JobFacts::Kind::kNeither);
  EXPECT_EQ(count("writers.scanned"), 9U) << "at the shell's next program";
  maps(kShell, site_.libtorch());
  proc.set_size(kShell, kShell - 1, 4096);
  for (const pid_t pid : {kProgram, kProgram + 1}) EXPECT_NE(kind_of(pid), JobFacts::Kind::kNeither) << pid;
}

TEST_F(WritersTest, IsSafeForManyThreads) {
  Program program;
  site_.load_torch(program);
  const pid_t thread = program.start("thread");
  const auto writers = open(always_anew());
  const Facet facets[] = {Facet::kTorch, Facet::kTriton, Facet::kPython, Facet::kLibc, Facet::kEnvironment};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 20; ++round) {
        const auto writer = writers->identify(i % 2 == 0 ? program.pid() : thread);
        ASSERT_TRUE(writer);
        EXPECT_EQ(judge_to_the_end(*writers, writer.get(), facets).match, Match::kMatches);
      }
    });
  }
  threads.clear();
  EXPECT_EQ(count("writers.package_reads"), 2U) << "eight threads that ask at once have a package read once";
}

/// What a job pays for each artefact; printed, and held only against a thousandfold slip.
TEST_F(WritersTest, IsCheapForAProcessThatIsKnown) {
  Program program(Environment{{"A", "1"}, {"B", std::string(1000, 'b')}});
  site_.load_torch(program);
  program.tell("map " + site_.libtriton());
  const pid_t thread = program.start("thread");
  const pid_t child = program.start("spawn");
  using Clock = std::chrono::steady_clock;
  const auto microseconds = [](testing::WritersOfMount& writers, pid_t pid, int rounds) {
    const auto start = Clock::now();
    for (int i = 0; i < rounds; ++i) EXPECT_TRUE(writers.identify(pid));
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count() / rounds;
  };
  constexpr int kRounds = 500;
  const auto kept = open();
  std::printf("identify, first time:              %8.1f us\n", microseconds(*kept, program.pid(), 1));
  const double known = microseconds(*kept, program.pid(), kRounds);
  std::printf("identify, known:                   %8.1f us\n", known);
  std::printf("identify, thread of a known one:   %8.1f us\n", microseconds(*kept, thread, kRounds));
  std::printf("identify, its compiler, first:     %8.1f us\n", microseconds(*kept, child, 1));
  std::printf("identify, its compiler, known:     %8.1f us\n", microseconds(*kept, child, kRounds));
  const auto anew = open(always_anew());
  std::printf("identify, environment read anew:   %8.1f us\n", microseconds(*anew, program.pid(), kRounds));
  EXPECT_LT(known, 50'000.0);
}

}  // namespace
}  // namespace inductorfs::fingerprint
