// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/takeover/request_slots.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iostream>
#include <set>
#include <string>
#include <thread>

#include "inductorfs/base/sanitized.h"
#include "support/lacks.h"

namespace inductorfs::takeover {
namespace {

/// A message as the kernel copies it: length, opcode, unique, and some more.
void put(Slot& slot, uint64_t unique, uint32_t length = 60, char fill = 'x') {
  std::memset(slot.request(), fill, length);
  const uint32_t opcode = 1;
  std::memcpy(slot.request() + 4, &opcode, sizeof(opcode));
  std::memcpy(slot.request() + 8, &unique, sizeof(unique));
  std::memcpy(slot.request(), &length, sizeof(length));
}

class Slots : public ::testing::Test {
 protected:
  Region region = std::move(*Region::create(2));
  RequestSlots slots{region};
};

TEST_F(Slots, TakeOneMessageOfTheLargestSize) {
  for (size_t i = 0; i < slots.threads(); ++i) {
    Slot& slot = slots.of_thread(i);
    ASSERT_GE(slot.request_size, (1U << 20) + 4096U);
    put(slot, 10 + i, static_cast<uint32_t>(slot.request_size), static_cast<char>('a' + i));
  }
  for (size_t i = 0; i < slots.threads(); ++i) {
    EXPECT_EQ(slots.of_thread(i).request()[slots.of_thread(i).request_size - 1], static_cast<char>('a' + i));
  }
  EXPECT_EQ(slots.left_over().size(), 2U);
}

TEST_F(Slots, ShowTheNextWorkerWhatIsNotDone) {
  put(slots.of_thread(0), 5);
  put(slots.of_thread(1), 6);
  slots.of_thread(1).free();

  const auto left = RequestSlots(region).left_over();

  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(left[0], &slots.of_thread(0));
  EXPECT_EQ(left[0]->phase, Slot::kTaken);
}

TEST_F(Slots, KeepTheAnswerAndTheWitness) {
  Slot& slot = slots.of_thread(0);
  put(slot, 5);
  {
    const Serving serving(slot, false);
    EXPECT_EQ(serving_slot(), &slot);
    EXPECT_FALSE(begun_effect());
    begin_effect(4711);
  }
  EXPECT_EQ(serving_slot(), nullptr);
  {
    const Serving again(slot, true);
    EXPECT_EQ(begun_effect(), 4711U);
  }
  slot.keep_reply("answer");
  EXPECT_EQ(slot.phase, Slot::kAnswered);
  EXPECT_EQ(std::string(slot.reply, slot.reply_size), "answer");
  slot.free();
  put(slot, 7);
  const Serving next(slot, true);
  EXPECT_FALSE(begun_effect()) << "of another request";
}

TEST_F(Slots, SayWhatTheirThreadServes) {
  Slot& slot = slots.of_thread(0);
  EXPECT_EQ(slot.served, 0U);
  put(slot, 5);
  EXPECT_EQ(slot.served, 0U) << "nobody has begun it";
  const Serving serving(slot, false);
  EXPECT_EQ(slot.served, 5U);
  (void)RequestSlots(region).left_over();
  EXPECT_EQ(slot.served, 5U);
  slot.free();
  EXPECT_EQ(slot.served, 0U);
}

TEST_F(Slots, KnowARequestThatAWorkerHasBegunToServe) {
  Slot& slot = slots.of_thread(0);
  put(slot, 5);
  EXPECT_FALSE(slot.was_served()) << "it may be half a request";
  {
    const Serving serving(slot, false);
    note_progress();
    note_progress();
  }
  EXPECT_TRUE(slot.was_served());
  EXPECT_EQ(slot.steps, 2U);
  EXPECT_NE(slot.thread, 0);
  slot.deaths = 1;
  EXPECT_TRUE(RequestSlots(region).left_over().at(0)->was_served());
  {
    const Serving again(slot, true);
    EXPECT_EQ(slot.steps, 0U);
    EXPECT_EQ(slot.deaths, 1U) << "whoever begins it again knows what it has cost";
  }
  slot.free();
  put(slot, 7);
  EXPECT_FALSE(slot.was_served());
  EXPECT_EQ(slot.deaths, 0U);
}

TEST_F(Slots, NothingIsSaidOutsideOfARequest) {
  note_progress();
  begin_effect(1);
  EXPECT_FALSE(begun_effect());
}

TEST_F(Slots, AnAnswerThatIsTooLongIsNotKept) {
  Slot& slot = slots.of_thread(0);
  slot.keep_reply(std::string(Slot::kReplyLimit + 1, 'x'));
  EXPECT_EQ(slot.phase, Slot::kTaken);
  slot.keep_reply(std::string(Slot::kReplyLimit, 'x'));
  EXPECT_EQ(slot.phase, Slot::kAnswered);
}

TEST_F(Slots, ADetachedRequestIsThereOnceForTheNextWorker) {
  put(slots.of_thread(0), 5);
  Slot* detached = slots.detach(slots.of_thread(0));
  ASSERT_NE(detached, nullptr);
  EXPECT_EQ(std::memcmp(detached->request(), slots.of_thread(0).request(), 60), 0);
  EXPECT_EQ(slots.left_over().size(), 1U) << "killed before the thread's own was freed";

  put(slots.of_thread(0), 6);
  detached = slots.detach(slots.of_thread(0));
  ASSERT_NE(detached, nullptr);
  slots.of_thread(0).free();
  const auto left = slots.left_over();
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(left[0], detached);
  EXPECT_EQ(left[0]->phase, Slot::kTaken) << "a lookup may be done again";
}

TEST_F(Slots, DetachUntilAllAreTakenAndNothingTooLong) {
  put(slots.of_thread(0), 5, RequestSlots::kDetachedRoom + 1);
  EXPECT_EQ(slots.detach(slots.of_thread(0)), nullptr);
  put(slots.of_thread(0), 5);
  std::set<Slot*> taken;
  for (size_t i = 0; i < RequestSlots::kDetached; ++i) taken.insert(slots.detach(slots.of_thread(0)));
  EXPECT_EQ(taken.size(), RequestSlots::kDetached);
  EXPECT_FALSE(taken.contains(nullptr));
  EXPECT_EQ(slots.detach(slots.of_thread(0)), nullptr);
  (*taken.begin())->free();
  EXPECT_EQ(slots.detach(slots.of_thread(0)), *taken.begin());
}

TEST_F(Slots, AreDetachedFromManyThreadsAtOnce) {
  std::atomic<int> wrong{0};
  std::vector<std::jthread> threads;
  for (uint64_t t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      Slot& own = slots.of_thread(t);
      for (uint64_t i = 0; i < 20'000; ++i) {
        put(own, 2 * i + t, 60, static_cast<char>('a' + t));
        Slot* detached = slots.detach(own);
        if (detached == nullptr || std::memcmp(detached->request(), own.request(), 60) != 0) ++wrong;
        if (detached != nullptr) detached->free();
      }
    });
  }
  threads.clear();
  EXPECT_EQ(wrong, 0);
}

/// Of the memory that several processes share, what is there.
size_t bytes_in_memory(const Region& region) {
  struct stat status {};
  return ::fstat(region.fd(), &status) == 0 ? static_cast<size_t>(status.st_blocks) * 512 : 0;
}

TEST(SpareSlots, TakeMemoryWhileTheyAreUsed) {
  const Region plain = std::move(*Region::create(2));
  const Region region = std::move(*Region::create(2, 8));
  EXPECT_EQ(region.threads(), 10U);
  EXPECT_EQ(region.spares(), 8U);
  const RequestSlots slots(region);
  (void)slots.left_over();
  const size_t idle = bytes_in_memory(region);
  EXPECT_LE(idle, bytes_in_memory(plain) + size_t{8} * 8192) << "two pages each";

  for (size_t round = 0; round < 2; ++round) {
    ASSERT_TRUE(slots.prepare(9));
    EXPECT_GE(bytes_in_memory(region), idle + RequestSlots::kRequestRoom - 4096);
    put(slots.of_thread(9), 5, static_cast<uint32_t>(slots.of_thread(9).request_size));
    EXPECT_EQ(RequestSlots(region).left_over().size(), 1U) << "the next worker finds it as any other";
    slots.of_thread(9).free();
    slots.give_back(9);
    EXPECT_EQ(bytes_in_memory(region), idle);
    EXPECT_EQ(slots.left_over().size(), 0U);
  }
}

TEST(SpareSlots, AreFewerWhereThereAreManyThreads) {
  EXPECT_EQ(Region::create(250, Region::kSpares)->spares(), 6U);
  EXPECT_EQ(Region::create(256, Region::kSpares)->spares(), 0U);
}

/// KiB of this process that are locked in memory.
size_t locked() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmLck:")) return std::stoul(line.substr(line.find(':') + 1));
  }
  return 0;
}

constexpr size_t kUsualLimit = size_t{8} << 20;

/// In a process of an ordinary user, with the limit that Linux gives it.
[[noreturn]] void report_locked(size_t threads) {
  const rlimit usual{kUsualLimit, kUsualLimit};
  const bool bound = ::setrlimit(RLIMIT_MEMLOCK, &usual) == 0 && (::geteuid() != 0 || ::seteuid(65534) == 0);
  const auto region = Region::create(threads);
  if (!bound || !region) ::_exit(1);
  const RequestSlots slots(*region);
  std::cerr << "locked " << locked() << " KiB";
  ::_exit(0);
}

TEST(SlotsUnderALimit, AreLockedAsFarAsItGoes) {
#ifdef INDUCTORFS_SANITIZED
  INDUCTORFS_LACKS("an mlock of its own: this is a sanitizer's");
#endif
  EXPECT_EXIT(report_locked(4), ::testing::ExitedWithCode(0), "locked 5[0-9]{3} KiB") << "all of them";
  EXPECT_EXIT(report_locked(16), ::testing::ExitedWithCode(0), "locked [78][0-9]{3} KiB")
      << "each head, and the rest of some";
}

}  // namespace
}  // namespace inductorfs::takeover
