// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/loose_thread.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <future>
#include <thread>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/thread.h"
#include "support/temporary_directory.h"

namespace inductorfs {
namespace {

using testing::TemporaryDirectory;

Fd file_in(const TemporaryDirectory& directory) {
  return Fd(::open((directory / "file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
}

TEST(LooseThread, KeepsNoLockAndNoFileOfItsProcess) {
  const TemporaryDirectory directory;
  Fd file = file_in(directory);
  ASSERT_TRUE(file);
  ASSERT_EQ(::flock(file.get(), LOCK_EX | LOCK_NB), 0);
  std::promise<void> loose;
  std::promise<void> end;
  const std::jthread waiting = start_thread("waiting", [&](const std::stop_token&) {
    EXPECT_TRUE(run_loose("loose", [&] {
      EXPECT_EQ(::fcntl(file.get(), F_GETFD), -1);
      loose.set_value();
      end.get_future().wait();
    }));
  });
  loose.get_future().wait();
  EXPECT_GE(::fcntl(file.get(), F_GETFD), 0);
  file.reset();
  const Fd again = file_in(directory);
  EXPECT_EQ(::flock(again.get(), LOCK_EX | LOCK_NB), 0);
  end.set_value();
}

/// In a process of a user who may have no more threads.
[[noreturn]] void run_without_room() {
  const rlimit none{0, 0};
  const bool bound = ::setrlimit(RLIMIT_NPROC, &none) == 0 && (::geteuid() != 0 || ::setuid(65534) == 0);
  bool ran = false;
  const bool run = run_loose("loose", [&ran] { ran = true; });
  ::_exit(bound && !run && !ran ? 0 : 1);
}

TEST(LooseThread, SaysThatTheHostHasNoRoomForOne) {
  EXPECT_EXIT(run_without_room(), ::testing::ExitedWithCode(0), "");
  bool ran = false;
  EXPECT_TRUE(run_loose("loose", [&ran] { ran = true; }));
  EXPECT_TRUE(ran);
}

/// In the child of a death test.
[[noreturn]] void crash(bool loose) {
  const rlimit none{};
  (void)::setrlimit(RLIMIT_CORE, &none);
  crash_without_loose_threads();
  if (loose) {
    (void)run_loose("loose", [] {
      (void)::kill(::getpid(), SIGSEGV);  // the main thread alone takes signals, some time after this
      while (true) (void)::pause();
    });
  }
  (void)::raise(SIGSEGV);
  ::_exit(0);
}

TEST(LooseThreadDeathTest, HoldsUpNoCrash) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(crash(true), ::testing::ExitedWithCode(128 + SIGSEGV), "");
}

TEST(LooseThreadDeathTest, IsWhatACrashWithoutACoreIsFor) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(crash(false), ::testing::KilledBySignal(SIGSEGV), "");
}

}  // namespace
}  // namespace inductorfs
