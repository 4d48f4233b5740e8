// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/mount/thread_watch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <ctime>
#include <functional>
#include <optional>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/thread.h"
#include "support/emulator.h"
#include "support/patience.h"

namespace inductorfs::mount {
namespace {

using namespace std::chrono_literals;

/// Its clock is the test's; the signs of threads are the kernel's.
class WatchedThread : public ::testing::Test {
 protected:
  static constexpr Milliseconds kPatience{15000};

  std::vector<StuckThread> look(Milliseconds later) {
    now_ += later;
    return watch_.look(now_, threads_at_work());
  }
  /// Looks until the thread sleeps, so that a later look finds that it has made no progress since.
  [[nodiscard]] bool sleeps() {
    const Deadline deadline = Deadline::after(20s * testing::kSlowness);
    while (!deadline.passed()) {
      const auto before = signs();
      (void)look(0ms);
      (void)::poll(nullptr, 0, 50);
      (void)look(0ms);
      if (before && signs() && before->same_work(*signs())) return true;
    }
    return false;
  }
  static std::optional<ThreadSigns> signs() {
    const auto all = threads_at_work();
    return all.empty() ? std::nullopt : std::optional(signs_of(all.front().thread));
  }

  SteadyTime now_{};
  ThreadWatch watch_{kPatience};
};

/// A pipe that a thread reads from, until it is closed.
struct Hold {
  Hold() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    held.reset(ends[0]);
    end.reset(ends[1]);
  }
  void wait() const {
    char byte = 0;
    (void)!::read(held.get(), &byte, 1);
  }
  Fd held;
  Fd end;
};

TEST_F(WatchedThread, NamesAThreadThatHangsAndWhatItIsAt) {
  Hold hold;
  const std::jthread thread = start_thread("seal", [&hold](const std::stop_token&) {
    const Activity activity("seals ab/cab.py", AwaitedBy::kSync);
    hold.wait();
  });
  ASSERT_TRUE(sleeps());
  EXPECT_TRUE(look(kPatience - 1s).empty());
  const auto stuck = look(6s);
  ASSERT_EQ(stuck.size(), 1U);
  EXPECT_EQ(stuck[0].to_string(), "the thread seal has made no progress for 20 s: it seals ab/cab.py");
  EXPECT_EQ(stuck[0].work.awaited_by, AwaitedBy::kSync);
  EXPECT_FALSE(stuck[0].waits_for_disk);
  ThreadWatch none{0ms};
  EXPECT_TRUE(none.look(now_, threads_at_work()).empty());
  EXPECT_TRUE(none.look(now_ + 1h, threads_at_work()).empty()) << "--hang-timeout 0";
  hold.end.reset();
}

TEST_F(WatchedThread, TakesNoSlowWorkForAHangingOne) {
  std::atomic<bool> ended{false};
  const auto goes_on = [&](const std::function<void()>& step) {
    const std::jthread thread = start_thread("works", [&](const std::stop_token&) {
      const Activity activity("works");
      while (!ended) step();
    });
    bool moved = true;
    for (int i = 0; i < 5; ++i) {
      std::optional<ThreadSigns> before;
      const Deadline deadline = Deadline::after(20s * testing::kSlowness);
      while (!deadline.passed() && (!before || before->same_work(*signs()))) {
        (void)::poll(nullptr, 0, 5);
        if (before || !signs()) continue;
        (void)look(0ms);
        before = signs();
      }
      moved = moved && look(kPatience + 1s).empty();
    }
    ended = true;
    return moved;
  };
  EXPECT_TRUE(goes_on([] { (void)::poll(nullptr, 0, 5); })) << "many waits, each of them short: a slow disk";
  ended = false;
  EXPECT_TRUE(goes_on([] { (void)::clock(); })) << "it computes";
}

TEST_F(WatchedThread, SaysThatAThreadWaitsForTheDisk) {
  INDUCTORFS_NEEDS_NO_EMULATOR("vfork(2) that stops its caller");
  Hold hold;
  const std::jthread thread = start_thread("seal", [&hold](const std::stop_token&) {
    const Activity activity("seals");
    // The parent of a vfork(2) sleeps as who waits for a disk does: in state D.
    const long child = ::syscall(SYS_clone, CLONE_VFORK | SIGCHLD, nullptr, nullptr, nullptr, nullptr);
    if (child == 0) {
      (void)::close(hold.end.get());
      hold.wait();
      ::_exit(0);
    }
    (void)::waitpid(static_cast<pid_t>(child), nullptr, 0);
  });
  ASSERT_TRUE(sleeps());
  const auto stuck = look(kPatience);
  hold.end.reset();
  ASSERT_EQ(stuck.size(), 1U);
  EXPECT_TRUE(stuck[0].waits_for_disk);
  EXPECT_NE(stuck[0].to_string().find(", and waits for the disk"), std::string::npos);
}

TEST_F(WatchedThread, AsksNothingOfAThreadThatWaitsForSomethingToDo) {
  Hold hold;
  const std::jthread thread = start_thread("seal", [&hold](const std::stop_token&) { hold.wait(); });
  EXPECT_TRUE(look(0ms).empty());
  EXPECT_TRUE(look(1h).empty());
  hold.end.reset();
}

}  // namespace
}  // namespace inductorfs::mount
