// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/common/child.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "inductorfs/base/fd.h"

namespace inductorfs::fingerprint {
namespace {

constexpr Milliseconds kAmple{20000};

std::vector<std::string> shell(const std::string& script) { return {"/bin/sh", "-c", script}; }

TEST(RunChild, GivesBothStreamsAndTheExitCode) {
  const auto answer = run_child(shell("echo out; echo err >&2; exit 7"), kAmple);
  ASSERT_TRUE(answer) << answer.error().to_string();
  EXPECT_EQ(answer->out, "out\n");
  EXPECT_EQ(answer->err, "err\n");
  EXPECT_EQ(answer->exit_code, 7);
}

TEST(RunChild, SaysWhichProgramIsMissing) {
  const auto answer = run_child({"no-such-program-of-inductorfs"}, kAmple);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code(), ErrorCode::kNotFound);
  EXPECT_NE(answer.error().what().find("no-such-program-of-inductorfs"), std::string::npos);
}

TEST(RunChild, KillsAHangingChildAndItsOwnChildrenAtTheDeadline) {
  const auto start = std::chrono::steady_clock::now();
  const auto answer = run_child(shell("sleep 60 & echo $!; wait"), Milliseconds(200));
  const auto took = std::chrono::steady_clock::now() - start;
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code(), ErrorCode::kTimedOut);
  EXPECT_LT(took, std::chrono::seconds(20));
}

TEST(RunChild, LeavesNoChildThatWasGivenUpBeforeItHadItsOwnGroup) {
  for (int round = 0; round < 10; ++round) {
    ChildOptions options;
    options.cancelled = [] { return true; };
    const auto answer = run_child(shell("exec sleep 60"), kAmple, options);
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code(), ErrorCode::kUnavailable);
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child that is alive, or was left to be reaped";
  }
}

TEST(RunChild, LeavesNoZombieWhereTheKernelGivesNoPidfd) {
  rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
  std::vector<Fd> pipes;  // as many as a child needs
  for (int i = 0; i < 6; ++i) pipes.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const rlimit few{static_cast<rlim_t>(pipes.back().get()) + 1, usual.rlim_max};
  pipes.clear();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto answer = run_child({"/bin/sleep", "100"}, kAmple);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &usual), 0);
  EXPECT_FALSE(answer);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
}

TEST(RunChild, HasTheMemoryKillerTakeTheChildFirst) {
  const auto answer = run_child(shell("cat /proc/self/oom_score_adj"), kAmple);
  ASSERT_TRUE(answer) << answer.error().to_string();
  EXPECT_EQ(answer->out, "1000\n");
}

TEST(RunChild, KillsTheChildWhenThisProcessIsKilled) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t caller = fork();
  ASSERT_GE(caller, 0);
  if (caller == 0) {
    const std::string told = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(ends[1]);
    (void)run_child(shell("echo $$ > " + told + "; exec sleep 60"), kAmple);
    _exit(0);
  }
  char text[16] = {};
  ASSERT_GT(read(ends[0], text, sizeof text - 1), 0);
  const Fd child(static_cast<int>(syscall(SYS_pidfd_open, std::stoi(text), 0)));
  ASSERT_TRUE(child);
  ASSERT_EQ(kill(caller, SIGKILL), 0);
  pollfd ended{child.get(), POLLIN, 0};
  EXPECT_EQ(poll(&ended, 1, 10'000), 1);
  EXPECT_EQ(waitpid(caller, nullptr, 0), caller);
  for (const int end : ends) (void)close(end);
}

TEST(RunChild, DoesNotWaitForAGrandchildThatKeepsThePipeOpen) {
  const auto start = std::chrono::steady_clock::now();
  const auto answer = run_child(shell("sleep 30 & echo $!"), kAmple);
  ASSERT_TRUE(answer) << answer.error().to_string();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
  (void)kill(static_cast<pid_t>(std::stol(answer->out)),
             SIGKILL);  // a stray sleep would only outlive the test
}

TEST(RunChild, ReportsASignalAsAShellDoes) {
  const auto answer = run_child(shell("kill -SEGV $$"), kAmple);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->exit_code, 128 + SIGSEGV);
}

TEST(RunChild, RefusesEndlessOutput) {
  const auto answer = run_child(shell("while :; do echo 0123456789012345678901234567890123456789; done"), kAmple);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code(), ErrorCode::kTooLarge);
}

TEST(RunChild, TakesMoreOutputThanAPipeHolds) {
  const auto answer = run_child(shell("head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2"), kAmple);
  ASSERT_TRUE(answer) << answer.error().to_string();
  EXPECT_EQ(answer->out.size(), 300000U);
  EXPECT_EQ(answer->err.size(), 300000U);
}

TEST(RunChild, HidesTheCacheVariablesAndAddsItsOwn) {
  ASSERT_EQ(setenv("TORCHINDUCTOR_CACHE_DIR", "/nowhere", 1), 0);
  ASSERT_EQ(setenv("TRITON_CACHE_DIR", "/nowhere", 1), 0);
  ASSERT_EQ(setenv("FINGERPRINT_TEST_KEPT", "kept", 1), 0);
  ChildOptions options;
  options.environment = {"ADDED=yes"};
  const auto answer = run_child(
      shell("echo \"${TORCHINDUCTOR_CACHE_DIR-none} ${TRITON_CACHE_DIR-none} $LC_ALL $FINGERPRINT_TEST_KEPT $ADDED\""),
      kAmple, options);
  ASSERT_EQ(unsetenv("TORCHINDUCTOR_CACHE_DIR"), 0);
  ASSERT_EQ(unsetenv("TRITON_CACHE_DIR"), 0);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->out, "none none C kept yes\n");
}

TEST(RunChild, InheritsNoDescriptorAndNoBlockedSignal) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);  // without O_CLOEXEC, as some library might
  const Fd read_end(ends[0]);
  const Fd write_end(fcntl(ends[1], F_DUPFD, 50));
  (void)close(ends[1]);
  sigset_t blocked;
  sigset_t before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &blocked, &before), 0);
  const auto answer = run_child(
      shell("[ -e /proc/self/fd/" + std::to_string(write_end.get()) + " ] && echo leaked; kill -TERM $$"), kAmple);
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, &before, nullptr), 0);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->out, "");
  EXPECT_EQ(answer->exit_code, 128 + SIGTERM);
}

TEST(RunChild, GivesABareChildNoPrivilegesTerminalOrEnvironment) {
  ASSERT_EQ(::setenv("FINGERPRINT_TEST_SECRET", "secret", 1), 0);
  ChildOptions options;
  options.bare = true;
  const auto answer = run_child(shell("grep -E '^NoNewPrivs:' /proc/self/status; env; ls /proc/self/fd; pwd; "
                                      "(: < /dev/tty) 2>/dev/null && echo terminal; ulimit -c; ulimit -n"),
                                kAmple, options);
  ASSERT_EQ(::unsetenv("FINGERPRINT_TEST_SECRET"), 0);
  ASSERT_TRUE(answer) << answer.error().to_string();
  for (const char* line : {"NoNewPrivs:\t1\n", "\n/\n0\n"}) {
    EXPECT_NE(answer->out.find(line), std::string::npos) << line << "\n" << answer->out;
  }
  EXPECT_EQ(answer->out.find("secret"), std::string::npos) << answer->out;
  EXPECT_EQ(answer->out.find("terminal"), std::string::npos) << answer->out;
}

}  // namespace
}  // namespace inductorfs::fingerprint
