// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <cstring>
#include <thread>

#include "fake_file_system.h"
#include "fake_kernel.h"
#include "inductorfs/fuse/session.h"
#include "inductorfs/takeover/request_slots.h"
#include "support/patience.h"

/// What a session does when all of its threads are at requests that take long.
namespace inductorfs::fuse {
namespace {

using std::string_literals::operator""s;
constexpr uint64_t kRoot = 1;
constexpr size_t kThreads = 2;
constexpr size_t kSpares = 8;

class SpareThreadsOfASession : public ::testing::Test {
 protected:
  SpareThreadsOfASession() {
    files_.add_file("slow", "");
    files_.add_file("fast", "");
    files_.block_lookup("slow");
  }
  ~SpareThreadsOfASession() override { files_.release("slow"); }

  void start(bool resume = false) {
    SessionOptions options;
    options.region = &region_;
    options.resume = resume;
    auto opened = Session::open(kernel_.take_device(), options, files_, counters_);
    ASSERT_TRUE(opened) << opened.error().to_string();
    session_ = std::move(*opened);
    session_->start([this] { ++ended_; });
    if (!resume) (void)kernel_.init(~0U);  // its answer is another test's
  }
  void ask_slowly(size_t count) {
    for (size_t i = 0; i < count; ++i) kernel_.send(FUSE_LOOKUP, kRoot, "slow\0"s);
    ASSERT_TRUE(files_.wait_until_waiting("slow", count));
  }
  int error_of(std::string_view name) { return kernel_.ask(FUSE_LOOKUP, kRoot, std::string(name) + '\0').error; }
  /// What an earlier worker, which was killed, left in the slot of this thread.
  void leave(size_t thread, uint64_t unique, std::string_view name) {
    fuse_init_in init{};
    init.major = FUSE_KERNEL_VERSION;
    init.minor = FUSE_KERNEL_MINOR_VERSION;
    const std::string first = testing::message_of(FUSE_INIT, 2, 0, {reinterpret_cast<const char*>(&init), sizeof init});
    std::memcpy(region_.page().init, first.data(), first.size());
    region_.page().init_size = static_cast<uint32_t>(first.size());
    region_.page().last_status = SIGKILL;
    if (thread >= kThreads) {
      ASSERT_TRUE(slots_.prepare(thread));
    }
    const std::string message = testing::message_of(FUSE_LOOKUP, unique, kRoot, std::string(name) + '\0');
    std::memcpy(slots_.of_thread(thread).request(), message.data(), message.size());
    slots_.of_thread(thread).served = unique;
  }
  /// Of the memory that the next worker gets.
  size_t bytes_in_memory() {
    struct stat status {};
    return ::fstat(region_.fd(), &status) == 0 ? static_cast<size_t>(status.st_blocks) * 512 : 0;
  }
  bool comes_down_to(size_t bytes) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20 * testing::kSlowness);
    while (bytes_in_memory() > bytes && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    return bytes_in_memory() <= bytes;
  }

  takeover::Region region_ = std::move(*takeover::Region::create(kThreads, kSpares));
  takeover::RequestSlots slots_{region_};
  testing::FakeKernel kernel_;
  testing::FakeFileSystem files_;
  Counters counters_;
  std::atomic<int> ended_{0};
  std::unique_ptr<Session> session_;
};

TEST_F(SpareThreadsOfASession, AnswerWhileEachOfItsOwnIsBusy) {
  start();
  ask_slowly(kThreads);
  EXPECT_EQ(error_of("fast"), 0);
  ask_slowly(kThreads + 3);
  EXPECT_EQ(error_of("fast"), 0);
}

TEST_F(SpareThreadsOfASession, EndAndGiveTheirMemoryBack) {
  start();
  const size_t idle = bytes_in_memory();
  ask_slowly(kThreads + 4);
  EXPECT_EQ(error_of("fast"), 0);
  EXPECT_GT(bytes_in_memory(), idle + (size_t{4} << 20));

  files_.release("slow");
  for (size_t i = 0; i < kThreads + 4; ++i) EXPECT_TRUE(kernel_.receive());

  EXPECT_TRUE(comes_down_to(idle)) << bytes_in_memory() << " bytes instead of " << idle;
  files_.block_lookup("slow");
  ask_slowly(kThreads + 1);
  EXPECT_EQ(error_of("fast"), 0) << "another time";
}

TEST_F(SpareThreadsOfASession, AreSoManyAndNoMore) {
  start();
  ask_slowly(kThreads + kSpares);
  kernel_.send(FUSE_LOOKUP, kRoot, "fast\0"s);
  EXPECT_EQ(kernel_.receive(100), std::nullopt) << "the bound that semantics.md tells";
  files_.release("slow");
  for (size_t i = 0; i < kThreads + kSpares + 1; ++i) EXPECT_TRUE(kernel_.receive());
}

TEST_F(SpareThreadsOfASession, EndWithTheSession) {
  start();
  ask_slowly(kThreads + 2);
  std::jthread stopping([this] { session_->stop(); });
  files_.release("slow");
  stopping.join();
  EXPECT_EQ(ended_, 0) << "nobody unmounted";
}

TEST_F(SpareThreadsOfASession, TellOnceThatTheKernelEndedIt) {
  start();
  ask_slowly(kThreads + 2);
  kernel_.hang_up();
  files_.release("slow");
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20 * testing::kSlowness);
  while (ended_ == 0 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  session_->stop();
  EXPECT_EQ(ended_, 1);
}

TEST_F(SpareThreadsOfASession, FinishWhatAnEarlierWorkerLeftInTheirSlots) {
  constexpr uint64_t kLeft = 4710;
  const size_t idle = bytes_in_memory();
  leave(kThreads + 3, kLeft, "slow");

  start(true);

  ASSERT_TRUE(files_.wait_until_waiting("slow", 1));
  EXPECT_EQ(error_of("fast"), 0);
  EXPECT_EQ(files_.finished(), 0U);
  files_.release("slow");
  const auto late = kernel_.receive();
  ASSERT_TRUE(late);
  EXPECT_EQ(late->unique, kLeft);
  EXPECT_EQ(late->error, 0);
  EXPECT_TRUE(comes_down_to(idle));
  session_->stop();
  EXPECT_EQ(files_.finished(), 1U);
}

TEST_F(SpareThreadsOfASession, GiveBackWhatAKilledWorkersHad) {
  const size_t idle = bytes_in_memory();
  leave(0, 4710, "fast");
  for (size_t i = 0; i < kSpares; ++i) ASSERT_TRUE(slots_.prepare(kThreads + i));
  ASSERT_GT(bytes_in_memory(), idle);
  start(true);
  EXPECT_TRUE(kernel_.receive());
  EXPECT_LE(bytes_in_memory(), idle);
}

}  // namespace
}  // namespace inductorfs::fuse
