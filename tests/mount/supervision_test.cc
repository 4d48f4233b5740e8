// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/mount/supervision.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <functional>
#include <thread>

#include "inductorfs/base/activity.h"
#include "inductorfs/base/thread.h"
#include "inductorfs/supervisor/protocol.h"
#include "support/patience.h"
#include "support/temporary_directory.h"

namespace inductorfs::mount {
namespace {

using supervisor::Receipt;
using supervisor::Word;

constexpr Milliseconds kPatience{20000 * testing::kSlowness};

template <typename Condition>
bool eventually(Condition&& condition) {
  const Deadline deadline = Deadline::after(kPatience);
  while (!condition()) {
    if (deadline.passed()) return false;
    (void)::poll(nullptr, 0, 5);
  }
  return true;
}

/// A worker's side, with the test as the supervisor.
class Supervised : public ::testing::Test {
 protected:
  void open(Milliseconds hang, Fd device = Fd()) {
    Result<takeover::Region> region = takeover::Region::create(2);
    ASSERT_TRUE(region.has_value());
    page_region_.emplace(std::move(*takeover::Region::attach(Fd(::dup(region->fd())))));
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    ours_.reset(ends[0]);
    worker_ = std::make_unique<Supervision>(std::move(*region), Fd(ends[1]),
                                            Supervision::KeptDescriptors{std::move(device), Fd(), Fd()}, hang);
    page().supervisor = 4711;
  }
  takeover::Page& page() { return page_region_->page(); }
  bool beats() {
    const int64_t before = page().beat;
    return eventually([&] { return page().beat != before; });
  }
  /// The next word that the worker says.
  std::optional<Word> heard() {
    Word word{};
    bool got = false;
    (void)eventually([&] {
      return got = supervisor::receive_word(ours_.get(), word, {&descriptor_, 1}) == Receipt::kWord;
    });
    return got ? std::optional(word) : std::nullopt;
  }

  std::optional<takeover::Region> page_region_;
  Fd ours_;
  Fd descriptor_;
  std::unique_ptr<Supervision> worker_;
};

TEST_F(Supervised, BeatsAndSaysWhenItServes) {
  open(Milliseconds(15000));
  worker_->start();
  EXPECT_TRUE(beats());
  EXPECT_TRUE(beats());
  EXPECT_EQ(page().serving, 0);
  worker_->serving();
  EXPECT_GT(page().serving, 0);
  EXPECT_FALSE(worker_->resumes());
}

TEST_F(Supervised, GivesTheStoresLockAwayAndFreesItOnlyAtTheEnd) {
  open(Milliseconds(15000));
  const inductorfs::testing::TemporaryDirectory directory;
  const std::string path = directory / "lock";
  const auto fresh = [&] { return Fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)); };
  const auto is_free = [&] { return ::flock(fresh().get(), LOCK_EX | LOCK_NB) == 0; };
  {
    const Fd lock = fresh();
    ASSERT_EQ(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
    worker_->keep_lock(lock.get());
  }
  EXPECT_EQ(heard(), Word::kLock);
  const Fd other = fresh();
  EXPECT_NE(::flock(other.get(), LOCK_EX | LOCK_NB), 0);
  EXPECT_EQ(::flock(worker_->lock(), LOCK_EX | LOCK_NB), 0) << "the very lock, not another";
  worker_->free_lock();
  EXPECT_TRUE(is_free());
}

TEST_F(Supervised, BeatsNoMoreWhileARequestIsNotAnswered) {
  open(Milliseconds(300));
  takeover::RequestSlots slots(*page_region_);
  takeover::Slot& slot = slots.of_thread(1);
  const std::array<uint64_t, 5> request{40, 99, 0, 0, 0};
  std::memcpy(slot.request(), request.data(), sizeof request);
  const takeover::Serving serving(slot, false);
  worker_->serving();
  worker_->start();
  // The heart looks each 250 ms; it has stopped when it missed a second.
  const bool stopped = eventually([&] {
    const int64_t before = page().beat;
    (void)::poll(nullptr, 0, 1000);
    return page().beat == before;
  });
  EXPECT_TRUE(stopped);
  slot.free();
  EXPECT_TRUE(beats()) << "it was answered after all";
}

/// A thread of the worker that serves a request with this number, until the object goes.
class Thread {
 public:
  Thread(takeover::Slot& slot, uint64_t unique, std::function<void(const std::stop_token&)> work) {
    const std::array<uint64_t, 5> request{40, unique, 0, 0, 0};
    std::memcpy(slot.request(), request.data(), sizeof request);
    thread_ = std::jthread([&slot, work = std::move(work)](const std::stop_token& stop) {
      const takeover::Serving serving(slot, false);
      work(stop);
      slot.free();
    });
    EXPECT_TRUE(eventually([&] { return slot.served == unique; }));
  }

 private:
  std::jthread thread_;
};

constexpr int kShort = 20;  ///< milliseconds

void waits(const std::stop_token& stop) {
  while (!stop.stop_requested()) (void)::poll(nullptr, 0, kShort);
}
void goes_on(const std::stop_token& stop) {
  for (; !stop.stop_requested(); takeover::note_progress()) (void)::poll(nullptr, 0, kShort);
}

/// What a heart does whose requests take far longer than kHang.
class LongRequest : public Supervised {
 protected:
  static constexpr Milliseconds kHang{300};
  void SetUp() override {
    open(kHang);
    slots_.emplace(*page_region_);
    worker_->serving();
  }
  takeover::Slot& slot(size_t thread) { return slots_->of_thread(thread); }
  /// For as many beats as a heart needs to see a request that is stuck.
  bool beats_on() {
    for (int i = 0; i < 8; ++i) {
      if (!beats_within(Milliseconds(2000 * testing::kSlowness))) return false;
    }
    return true;
  }
  bool stops_beating() {
    return eventually([&] { return !beats_within(Milliseconds(1000)); });
  }
  bool beats_within(Milliseconds span) {
    const Deadline deadline = Deadline::after(span);
    const int64_t before = page().beat;
    while (page().beat == before) {
      if (deadline.passed()) return false;
      (void)::poll(nullptr, 0, 5);
    }
    return true;
  }
  std::optional<takeover::RequestSlots> slots_;
};

TEST_F(LongRequest, IsNotStuckWhileItMakesProgress) {
  const Thread thread(slot(0), 98, goes_on);
  worker_->start();
  EXPECT_TRUE(beats_on());
}

TEST_F(LongRequest, HoldsOthersUpWithoutMakingThemStuck) {
  const Thread holder(slot(0), 98, goes_on);
  const Thread waiter(slot(1), 100, waits);
  worker_->start();
  EXPECT_TRUE(beats_on()) << "the waiter wants a lock of the other one's";
}

TEST_F(LongRequest, HidesNoRequestThatWasStuckBeforeItBegan) {
  const Thread stuck(slot(1), 100, waits);
  worker_->start();
  EXPECT_TRUE(stops_beating());
  const Thread later(slot(0), 102, goes_on);
  EXPECT_FALSE(beats_within(Milliseconds(1000)));
}

TEST_F(LongRequest, IsNotStuckWhileItWaitsInTheKernel) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Fd held(ends[0]);
  Fd end(ends[1]);
  {
    // The parent of a vfork(2) sleeps as who waits for a disk does: in state D.
    const Thread thread(slot(0), 98, [&](const std::stop_token&) {
      const long child = ::syscall(SYS_clone, CLONE_VFORK | SIGCHLD, nullptr, nullptr, nullptr, nullptr);
      if (child == 0) {
        char byte = 0;
        (void)::close(end.get());
        (void)!::read(held.get(), &byte, 1);
        ::_exit(0);
      }
      (void)::waitpid(static_cast<pid_t>(child), nullptr, 0);
    });
    worker_->start();
    EXPECT_TRUE(beats_on());
    end.reset();
  }
  EXPECT_TRUE(beats_on());
}

TEST_F(Supervised, BeatsOnWhileAThreadThatNoJobNeedsHangsAndGivesItUpAtTheEnd) {
  open(Milliseconds(1));  // threads like this one have 5 s
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Fd held(ends[0]);
  Fd end(ends[1]);
  const std::jthread thread = start_thread("seal", [&held](const std::stop_token&) {
    const Activity activity("seals ab/cab.py", AwaitedBy::kSync);
    char byte = 0;
    (void)!::read(held.get(), &byte, 1);
  });
  worker_->serving();
  worker_->start();
  EXPECT_TRUE(eventually([&] { return !worker_->stuck_threads().empty(); }));
  ASSERT_EQ(worker_->news().stuck.size(), 1U);
  EXPECT_EQ(worker_->news().stuck[0].work.what, "seals ab/cab.py");
  EXPECT_TRUE(beats());
  EXPECT_TRUE(beats());
  Guarded<std::string> given_up;
  worker_->ending([&](const StuckThread& stuck) { given_up.with([&](auto& name) { name = stuck.work.name; }); });
  EXPECT_TRUE(eventually([&] { return given_up.with([](const auto& name) { return name == "seal"; }); }));
  worker_->ending({});
  end.reset();
  EXPECT_TRUE(eventually([&] { return worker_->stuck_threads().empty(); }));
}

TEST_F(Supervised, GivesTheDevice) {
  open(Milliseconds(15000));
  ASSERT_TRUE(worker_->give_device(ours_.get()).has_value());
  EXPECT_EQ(heard(), Word::kDevice);
  EXPECT_TRUE(descriptor_);
}

TEST_F(Supervised, ResumesWithADevice) {
  open(Milliseconds(15000), Fd(::dup(STDERR_FILENO)));
  EXPECT_TRUE(worker_->resumes());
  EXPECT_TRUE(worker_->take_device());
}

TEST_F(Supervised, AsksForAnUpgrade) {
  for (const bool taken : {true, false}) {
    open(Milliseconds(15000));
    worker_->start();
    std::jthread supervisor([&] {
      EXPECT_EQ(heard(), Word::kUpgrade);
      EXPECT_TRUE(descriptor_);
      (void)supervisor::send_word(ours_.get(), taken ? Word::kUpgradeTaken : Word::kUpgradeRefused);
    });
    const Result<void> asked = worker_->ask_upgrade("inductorfs", Fd(::dup(STDERR_FILENO)));
    EXPECT_EQ(asked.has_value(), taken);
    if (!taken) {
      EXPECT_EQ(asked.error().code(), ErrorCode::kBusy);
    }
  }
}

TEST_F(Supervised, GoesOnAloneWhenItsSupervisorIsGone) {
  open(Milliseconds(15000));
  worker_->start();
  EXPECT_EQ(worker_->news().supervisor, 4711);
  ours_.reset();
  EXPECT_TRUE(eventually([&] { return worker_->news().supervisor == 0; }));
  EXPECT_TRUE(beats());
  const Result<void> asked = worker_->ask_upgrade("inductorfs", Fd(::dup(STDERR_FILENO)));
  ASSERT_FALSE(asked.has_value());
  EXPECT_EQ(asked.error().code(), ErrorCode::kUnavailable);
}

TEST_F(Supervised, TellsWhatTheSupervisorHasSeen) {
  open(Milliseconds(15000));
  EXPECT_EQ(worker_->news().last_end, "");
  EXPECT_EQ(worker_->news().slots, 2U);
  page().restarts = 3;
  page().upgrades = 2;
  page().upgrade_failed = 1;
  page().upgrade_taken_back = 4;
  page().safe_mode = 1;
  page().last_status = SIGSEGV;
  page().last_restart = std::chrono::steady_clock::now().time_since_epoch().count();
  const SupervisionNews news = worker_->news();
  EXPECT_EQ(news.restarts, 3U);
  EXPECT_EQ(news.upgrades, 2U);
  EXPECT_EQ(news.upgrades_failed, 1U);
  EXPECT_EQ(news.upgrades_taken_back, 4U);
  EXPECT_TRUE(news.safe_mode);
  EXPECT_EQ(news.last_end, "signal 11");
  EXPECT_LE(std::abs(news.last_crash - std::time(nullptr)), 2);
  page().last_was_hung = 1;
  EXPECT_EQ(worker_->news().last_end, "hung, and was killed");
  EXPECT_EQ(describe_end(3 << 8, false), "code 3");
}

TEST(SupervisedByHand, IsRefused) {
  const Result<std::unique_ptr<Supervision>> none = Supervision::take_over(Milliseconds(1));
  EXPECT_FALSE(none.has_value());
}

}  // namespace
}  // namespace inductorfs::mount
