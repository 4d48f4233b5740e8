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

TEST_F(SpareThreadsOfASession, AreLeftForOthersByAUserWithALimit) {
  constexpr uint32_t kOther = 13;
  user_requests_ = 5;
  start();
  ask_slowly(user_requests_ - 1);
  EXPECT_EQ(error_of("fast"), 0) << "one of so many";
  kernel_.send(FUSE_LOOKUP, kRoot, "slow\0"s);
  ASSERT_TRUE(files_.wait_until_waiting("slow", user_requests_));
  const std::map<uint32_t, size_t> slow{{12, user_requests_}};
  while (session_->requests_by_user() != slow) std::this_thread::yield();  // as soon as they have taken long
  EXPECT_EQ(error_of("fast"), -EDQUOT);
  EXPECT_EQ(counters_.get("fuse.over_limit").get(), 1U);
  kernel_.send(FUSE_FORGET, kRoot, std::string(sizeof(fuse_forget_in), '\0'));
  EXPECT_EQ(kernel_.ask(FUSE_RELEASEDIR, kRoot, std::string(sizeof(fuse_release_in), '\0')).error, 0)
      << "what gives something back is taken";
  kernel_.set_user(0);
  EXPECT_EQ(error_of("fast"), 0) << "root's";
  kernel_.set_user(kOther);
  EXPECT_EQ(error_of("fast"), 0);
  files_.release("slow");
  for (size_t i = 0; i < user_requests_; ++i) ASSERT_TRUE(kernel_.receive());
  while (!session_->requests_by_user().empty()) std::this_thread::yield();
  kernel_.set_user(12);
  EXPECT_EQ(error_of("fast"), 0) << "again";
}

/// The kernel sends the next request when the one before is answered, whose thread may not have got on.
TEST_F(SpareThreadsOfASession, AreNotRefusedToRequestsThatAreFast) {
  user_requests_ = 1;
  start();
  for (int i = 0; i < 20'000; ++i) ASSERT_EQ(error_of("fast"), 0) << i;
  EXPECT_EQ(counters_.get("fuse.over_limit").get(), 0U);
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
