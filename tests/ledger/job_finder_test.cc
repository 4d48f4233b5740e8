// SPDX-License-Identifier: Apache-2.0
#include "job_finder.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "support/fake_clock.h"
#include "support/temporary_directory.h"

namespace inductorfs::ledger {
namespace {

using testing::FakeClock;
using testing::TemporaryDirectory;

using Values = std::map<std::string, std::string>;

/// A /proc of our own making.
class Finding : public ::testing::Test {
 protected:
  struct Made {
    pid_t parent = 1;
    std::string program = "/usr/bin/python3.11";
    uid_t user = 1000;
    uint64_t start = 100;
    std::string cgroup = "0::/user.slice\n";
  };
  void make(pid_t pid, const Made& made) { make_thread(pid, pid, made); }
  void make_thread(pid_t tid, pid_t process, const Made& made) {
    const std::string directory = proc_.path() + "/" + std::to_string(tid);
    std::filesystem::create_directories(directory);
    std::string fields;
    for (int i = 5; i < 22; ++i) fields += " 0";
    write(directory + "/stat", std::to_string(tid) + " (a ) name) S " + std::to_string(made.parent) + fields + " " +
                                   std::to_string(made.start) + " 0 0\n");
    write(directory + "/status",
          "Name:\tx\nTgid:\t" + std::to_string(process) + "\nUid:\t" + std::to_string(made.user) + "\t0\t0\t0\n");
    write(directory + "/cgroup", made.cgroup);
    write(directory + "/comm", "python3\n");
    std::filesystem::remove(directory + "/exe");
    std::filesystem::create_symlink(made.program, directory + "/exe");
  }
  static void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }
  JobFinder finder() {
    return JobFinder(
        processes_in(proc_.path()), [this](pid_t thread) { return unknown_.contains(thread) ? Values{} : variables_; },
        clock_);
  }
  void set_words(pid_t pid, const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) text += word + '\0';
    write(proc_.path() + "/" + std::to_string(pid) + "/cmdline", text);
  }
  TemporaryDirectory proc_;
  Values variables_;
  std::set<pid_t> unknown_;  ///< whose variables nobody knows
  FakeClock clock_;
};

TEST_F(Finding, ProcessesThatOneStartedAreOneJob) {
  make(10, {.program = "/bin/bash"});
  make(20, {.parent = 10});
  make(21, {.parent = 20});
  make_thread(22, 21, {.parent = 20});
  make(30, {.parent = 21, .program = "/usr/bin/x86_64-linux-gnu-g++-12"});
  make(40, {.parent = 10});
  JobFinder found = finder();
  const JobName job{1000, "process", "20"};
  EXPECT_EQ(found.find(20).name, job);
  EXPECT_EQ(found.find(22).name, job) << "a thread of a worker";
  EXPECT_EQ(found.find(22).process, (ProcessId{21, 100}));
  EXPECT_EQ(found.find(30).name, job) << "its compiler";
  EXPECT_EQ(found.find(40).name.id, "40") << "the next line of the same shell";
  EXPECT_EQ(found.find(20).command, "python3");
}

TEST_F(Finding, AnotherUsersAncestorIsNoPartOfAJob) {
  make(20, {.user = 1});
  make(21, {.parent = 20});
  EXPECT_EQ(finder().find(21).name, (JobName{1000, "process", "21"}));
}

TEST_F(Finding, ALoopOfParentsEnds) {
  make(20, {.parent = 21});
  make(21, {.parent = 20});
  EXPECT_EQ(finder().find(20).name.kind, "process");
}

TEST_F(Finding, ABatchSystemsJobIsOneJob) {
  make(20, {.cgroup = "0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_3\n"});
  make(21, {.cgroup = "12:memory:/slurm/uid_1000/job_4711/step_1\n0::/\n"});
  JobFinder found = finder();
  EXPECT_EQ(found.find(20).name, (JobName{1000, "slurm", "4711"}));
  EXPECT_EQ(found.find(21).name, found.find(20).name);
}

TEST_F(Finding, VariablesNameAJobWhereNoCgroupDoes) {
  variables_ = {{"SLURM_JOB_ID", "17"}, {"TORCHELASTIC_RUN_ID", "run"}};
  make(20, {});
  EXPECT_EQ(finder().find(20).name, (JobName{1000, "slurm", "17"}));
  variables_ = {{"TORCHELASTIC_RUN_ID", std::string(5000, 'r')}};
  EXPECT_EQ(finder().find(20).name, (JobName{1000, "torchelastic", std::string(64, 'r')}));
  variables_ = {{"TORCHELASTIC_RUN_ID", "none"}};
  EXPECT_EQ(finder().find(20).name.kind, "process") << "torchrun's default";
}

TEST_F(Finding, ACompilerIsOfTheJobThatItsInterpretersVariablesName) {
  variables_ = {{"SLURM_JOB_ID", "17"}, {"OMP_NUM_THREADS", "2"}};
  unknown_ = {30, 31};
  make(20, {});
  make(30, {.parent = 20, .program = "/usr/bin/x86_64-linux-gnu-g++-12"});
  make(31, {.parent = 30, .program = "/usr/libexec/gcc/x86_64-linux-gnu/12/cc1plus"});
  JobFinder found = finder();
  EXPECT_EQ(found.find(31).name, (JobName{1000, "slurm", "17"})) << "before anybody has asked for its interpreter";
  EXPECT_EQ(found.find(30).name, found.find(20).name);
  EXPECT_EQ(found.find(30).variables, variables_) << "else they would be said to differ within the job";
}

TEST_F(Finding, APodIsOneJobAndAContainerHasSeveral) {
  const std::string id(64, 'e');
  const std::string uid = "0a1b2c3d-0000-1111-2222-333344445555";
  EXPECT_EQ(job_in_cgroup("0::/kubepods/burstable/pod" + uid + "/" + id + "\n").id, uid);
  EXPECT_EQ(job_in_cgroup("0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-"
                          "pod0a1b2c3d_0000_1111_2222_333344445555.slice/cri-containerd-" +
                          id + ".scope\n")
                .id,
            uid);
  make(20, {.cgroup = "0::/system.slice/docker-" + id + ".scope\n"});
  EXPECT_EQ(finder().find(20).name, (JobName{1000, "container", "eeeeeeeeeeee process 20"}));
}

TEST_F(Finding, OtherCgroupsNameNoJob) {
  for (const char* text : {"", "\n", "0::/", "0::/user.slice/job_12/x", "0::/slurm/job_/x", "0::/slurm/job_12x/y",
                           "0::/kubepods/pod", "0::/kubepods/podzzzz", "garbage without colons"}) {
    EXPECT_EQ(job_in_cgroup(text).kind, "") << text;
  }
  EXPECT_EQ(job_in_cgroup("0::/slurm/job_" + std::string(5000, '1')).kind, "");
}

TEST_F(Finding, AThreadThatHasGoneIsHidden) {
  JobFinder found = finder();
  EXPECT_EQ(found.find(99).name.kind, "hidden");
  EXPECT_EQ(found.find(0).name.kind, "hidden");
  make(20, {});
  EXPECT_EQ(found.find(20).name.kind, "process");
  make(20, {.parent = 5, .start = 200});
  EXPECT_EQ(found.find(20).process.start, 100U) << "not looked at again within a second";
  clock_.advance(Milliseconds(1001));
  EXPECT_EQ(found.find(20).process.start, 200U);
}

TEST_F(Finding, AProcessWithManyThreadsIsLookedAtOnce) {
  make(20, {});
  JobFinder found = finder();
  EXPECT_EQ(found.find(20).command, "python3");
  for (pid_t thread = 100; thread < 200; ++thread) make_thread(thread, 20, {});
  write(proc_.path() + "/20/comm", "changed\n");
  for (pid_t thread = 100; thread < 200; ++thread) EXPECT_EQ(found.find(thread).command, "python3");
  variables_ = {{"SLURM_JOB_ID", "17"}};
  clock_.advance(Milliseconds(1001));
  EXPECT_EQ(found.find(100).name.kind, "slurm") << "its variables are known now";
}

TEST_F(Finding, AScriptIsAllThatIsToldOfACommandLine) {
  make(10, {.program = "/bin/bash"});
  make(20, {.parent = 10});
  const auto script = [this](const std::vector<std::string>& words) {
    set_words(20, words);
    return read_job_script(proc_.path(), 20);
  };
  EXPECT_EQ(script({"python", "/opt/job/train.py", "--password", "x"}), "/opt/job/train.py");
  EXPECT_EQ(script({"python", "-uB", "-X", "dev", "-Wignore", "train.py", "-c"}), "train.py");
  EXPECT_EQ(script({"python", "-u", "-m", "pkg.train", "--key=x"}), "-m pkg.train");
  EXPECT_EQ(script({"python", "-c", "password = 1"}), "-c");
  EXPECT_EQ(script({"VLLM::EngineCore"}), "");
  EXPECT_EQ(script({}), "");
  EXPECT_EQ(script({"python", "a\nb\xff"}), "a\\x0ab\\xff");
  EXPECT_LE(script({"python", std::string(5000, 's')}).size(), 256U);
  set_words(20, {"python", "/usr/bin/torchrun", "train.py"});
  EXPECT_EQ(read_job_script(proc_.path(), 20), "/usr/bin/torchrun");
  make(21, {.parent = 20});
  set_words(21, {"python", "-u", "train.py", "--lr", "1"});
  make(22, {.parent = 21});
  set_words(22, {"python", "-c", "from multiprocessing.spawn import spawn_main"});
  EXPECT_EQ(read_job_script(proc_.path(), 22), "train.py");
  EXPECT_EQ(read_job_script(proc_.path(), 10), "") << "a shell";
  EXPECT_EQ(finder().find(22).script, "train.py");
}

TEST_F(Finding, AProgramWithoutAnInterpreterIsNoJob) {
  make(10, {.program = "/bin/bash"});
  make(20, {.parent = 10, .program = "/usr/bin/rm"});
  make(30, {.parent = 10});
  make(31, {.parent = 30, .program = "/usr/bin/g++"});
  JobFinder found = finder();
  EXPECT_FALSE(found.find(20).is_job);
  EXPECT_TRUE(found.find(30).is_job);
  EXPECT_TRUE(found.find(31).is_job) << "a compiler of one";
  EXPECT_FALSE(found.find(99).is_job) << "it has ended, and nobody has looked";
  EXPECT_TRUE(found.find(0).is_job) << "it cannot be seen";
  std::filesystem::remove_all(proc_.path() + "/30");
  clock_.advance(Milliseconds(1001));
  EXPECT_EQ(found.find(30).name.id, "30") << "it was looked at while it lived";
}

TEST_F(Finding, WhoHasLoadedTorchIsAJob) {
  make(20, {});
  make(21, {.program = "/opt/frozen"});
  std::map<pid_t, bool> torch = {{20, false}, {21, true}};
  JobFinder found(processes_in(proc_.path()), {}, clock_,
                  [&torch](pid_t thread) { return std::optional(torch.at(thread)); });
  EXPECT_FALSE(found.find(20).is_job) << "a program of Python's without torch";
  EXPECT_TRUE(found.find(21).is_job);
  torch[20] = true;
  clock_.advance(Milliseconds(1001));
  EXPECT_TRUE(found.find(20).is_job) << "it has loaded it now";
}

TEST_F(Finding, AScriptThatDoesNotComeIsNotAskedForAgainSoon) {
  make(20, {});
  make(30, {});
  int asked = 0;
  JobProcesses processes = processes_in(proc_.path());
  processes.script_of = [&asked](const JobSigns&) -> std::optional<std::string> {
    ++asked;
    return std::nullopt;
  };
  JobFinder found(processes, {}, clock_);
  EXPECT_EQ(found.find(20).script, "");
  EXPECT_EQ(found.find(30).script, "");
  EXPECT_EQ(asked, 1);
}

TEST_F(Finding, CpusAreThoseThatTheProcessMayUse) {
  make(20, {});
  std::ofstream(proc_.path() + "/20/status", std::ios::app) << "Cpus_allowed_list:\t0-3,8\nMems_allowed:\t1\n";
  EXPECT_EQ(finder().find(20).cpus, 5U);
  const auto signs = read_job_signs(proc_.path(), 20);
  ASSERT_TRUE(signs);
  EXPECT_EQ(job_signs_from(to_text(*signs))->cpus, 5U);
}

TEST(JobFinder, SeesRealProcesses) {
  FakeClock clock;
  JobFinder finder(processes_in("/proc"), {}, clock);
  const FoundJob own = finder.find(::getpid());
  EXPECT_EQ(own.process.pid, ::getpid());
  EXPECT_EQ(own.name.user, ::getuid());
  EXPECT_TRUE(finder.lives(own.process));
  EXPECT_FALSE(finder.lives({own.process.pid, own.process.start + 1}));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const FoundJob found = finder.find(child);
  EXPECT_EQ(found.name, own.name);
  EXPECT_TRUE(finder.lives(found.process));
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  siginfo_t information{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &information, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(finder.lives(found.process)) << "a zombie";
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(finder.lives(found.process));
}

}  // namespace
}  // namespace inductorfs::ledger
