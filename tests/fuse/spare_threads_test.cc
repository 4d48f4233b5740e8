// SPDX-License-Identifier: Apache-2.0
#include "spare_threads_fixture.h"

/// What a session does when all of its threads are at requests that take long.
namespace inductorfs::fuse {
namespace {

TEST_F(SpareThreadsOfASession, AnswerWhileEachOfItsOwnIsBusy) {
  start();
  ask_slowly(kThreads);
  EXPECT_EQ(error_of("fast"), 0);
  ask_slowly(kThreads + 3);
  EXPECT_EQ(error_of("fast"), 0);
}

TEST_F(SpareThreadsOfASession, AreSoManyAndNoMore) {
  start();
  ask_slowly(kThreads + kSpares);
  kernel_.send(FUSE_LOOKUP, kRoot, "fast\0"s);
  EXPECT_EQ(kernel_.receive(100), std::nullopt) << "the bound that semantics/threats.md tells";
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
