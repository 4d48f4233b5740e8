// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/thread.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <latch>
#include <stdexcept>

#include "inductorfs/base/guarded.h"

namespace inductorfs {
namespace {

TEST(StartThread, NamesTheThreadAndCutsLongNames) {
  std::array<char, 32> name{};
  start_thread("a-name-that-is-too-long", [&](const std::stop_token&) {
    pthread_getname_np(pthread_self(), name.data(), name.size());
  }).join();
  EXPECT_STREQ(name.data(), "a-name-that-is-");
}

/// In a process of a user who may have no more threads.
[[noreturn]] void try_without_room() {
  const rlimit none{0, 0};
  const bool bound = ::setrlimit(RLIMIT_NPROC, &none) == 0 && (::geteuid() != 0 || ::setuid(65534) == 0);
  const auto thread = try_start_thread("spare", [] {});
  ::_exit(bound && !thread ? 0 : 1);
}

TEST(TryStartThread, SaysThatTheHostHasNoRoomForOne) {
  EXPECT_EXIT(try_without_room(), ::testing::ExitedWithCode(0), "");
  bool ran = false;
  auto thread = try_start_thread("spare", [&] { ran = true; });
  ASSERT_TRUE(thread);
  thread->join();
  EXPECT_TRUE(ran);
}

TEST(StartThread, BlocksSignalsThereAndLeavesTheCallersMask) {
  sigset_t before;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  sigset_t inside;
  start_thread("masked", [&](const std::stop_token&) { pthread_sigmask(SIG_SETMASK, nullptr, &inside); }).join();
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGPIPE, SIGUSR1, SIGCHLD, SIGRTMIN}) {
    EXPECT_EQ(sigismember(&inside, number), 1) << number;
  }
  EXPECT_EQ(sigismember(&inside, SIGSEGV), 0) << "a fault must reach its handler, or die with a core";
  sigset_t after;
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  EXPECT_EQ(sigismember(&after, SIGTERM), sigismember(&before, SIGTERM));
}

TEST(StartThread, StopTokenIsTheThreadsOwn) {
  auto thread = start_thread("stoppable", [](const std::stop_token& stop) {
    while (!stop.stop_requested()) std::this_thread::yield();
  });
  thread.request_stop();
  thread.join();
  EXPECT_FALSE(thread.joinable());
}

TEST(StartThreadDeathTest, ExceptionIsLoggedAndEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(start_thread("bad", [](const std::stop_token&) { throw std::runtime_error("out of cheese"); }).join(),
               "error base.thread_exception thread=bad error=\"out of cheese\"");
}

TEST(WorkerPool, RunsEverythingBeforeItGoes) {
  std::atomic<int> done{0};
  {
    WorkerPool pool("workers", 3, 1000);
    for (int i = 0; i < 500; ++i) EXPECT_TRUE(pool.submit([&] { ++done; }));
  }
  EXPECT_EQ(done, 500);
}

TEST(WorkerPool, AnswersFalseWhenItsQueueIsFull) {
  std::latch release(1);
  std::latch busy(1);
  std::atomic<int> done{0};
  WorkerPool pool("workers", 1, 2);
  EXPECT_TRUE(pool.submit([&] {
    busy.count_down();
    release.wait();
  }));
  busy.wait();
  EXPECT_TRUE(pool.submit([&] { ++done; }));
  EXPECT_TRUE(pool.submit([&] { ++done; }));
  EXPECT_FALSE(pool.submit([&] { ++done; }));
  EXPECT_EQ(pool.queued(), 2U);
  release.count_down();
  pool.stop();
  EXPECT_EQ(done, 2);
}

TEST(WorkerPool, UsesAllItsThreads) {
  std::latch all(3);  // opens only when three pieces of work run at once
  WorkerPool pool("workers", 3, 10);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pool.submit([&] { all.arrive_and_wait(); }));
  pool.stop();
  SUCCEED();
}

TEST(WorkerPool, WorkMaySubmitMore) {
  std::atomic<int> done{0};
  std::latch first(1);
  WorkerPool pool("workers", 2, 10);
  EXPECT_TRUE(pool.submit([&] {
    EXPECT_TRUE(pool.submit([&] { ++done; }));
    first.count_down();
  }));
  first.wait();
  pool.stop();
  EXPECT_EQ(done, 1);
}

TEST(WorkerPool, RefusesWorkAfterStop) {
  WorkerPool pool("workers", 1, 10);
  pool.stop();
  pool.stop();
  EXPECT_FALSE(pool.submit([] {}));
}

TEST(Guarded, WaitUntilSeesWhatNotifyWithChanged) {
  Guarded<int> value(0);
  auto thread = start_thread("notifier", [&](const std::stop_token&) { value.notify_with([](int& v) { v = 7; }); });
  const int seen = value.wait_until(
      std::chrono::steady_clock::now() + std::chrono::seconds(20), [](const int& v) { return v == 7; },
      [](int& v) { return v; });
  EXPECT_EQ(seen, 7);
}

TEST(Guarded, WaitUntilEndsAtItsDeadline) {
  Guarded<int> value(1);
  const int seen = value.wait_until(
      std::chrono::steady_clock::now(), [](const int& v) { return v == 7; }, [](int& v) { return v; });
  EXPECT_EQ(seen, 1);
}

}  // namespace
}  // namespace inductorfs
