// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <csignal>
#include <future>

#include "fake_file_system.h"
#include "fake_kernel.h"
#include "inductorfs/fuse/session.h"
#include "inductorfs/takeover/request_slots.h"

/// What a session does with the requests that an earlier worker has left.
namespace inductorfs::fuse {
namespace {

using std::string_literals::operator""s;
using takeover::Slot;
constexpr uint64_t kRoot = 1;
constexpr uint64_t kLeft = 4710;  ///< number of the request that was left

class LeftOver : public ::testing::Test {
 protected:
  LeftOver() {
    fuse_init_in init{};
    init.major = FUSE_KERNEL_VERSION;
    init.minor = FUSE_KERNEL_MINOR_VERSION;
    const std::string message =
        testing::message_of(FUSE_INIT, 2, 0, {reinterpret_cast<const char*>(&init), sizeof init});
    std::memcpy(region_.page().init, message.data(), message.size());
    region_.page().init_size = static_cast<uint32_t>(message.size());
    region_.page().last_status = SIGKILL;
  }
  ~LeftOver() override {
    for (const char* name : {"slow", "fast"}) files_.release(name);
  }

  Slot& leave(uint32_t opcode, std::string_view body, bool served = true) {
    Slot& slot = slots_.of_thread(0);
    const std::string message = testing::message_of(opcode, kLeft, kRoot, body);
    std::memcpy(slot.request(), message.data(), message.size());
    if (served) slot.served = kLeft;
    return slot;
  }
  void start() {
    SessionOptions options;
    options.region = &region_;
    options.resume = true;
    options.requests_finished = [this] { files_.requests_finished(); };
    auto opened = Session::open(kernel_.take_device(), options, files_, counters_);
    ASSERT_TRUE(opened) << opened.error().to_string();
    session_ = std::move(*opened);
    session_->start([] {});
  }
  uint64_t counted(const std::string& name) { return counters_.get(name).get(); }

  takeover::Region region_ = std::move(*takeover::Region::create(2));
  takeover::RequestSlots slots_{region_};
  testing::FakeKernel kernel_;
  testing::FakeFileSystem files_;
  Counters counters_;
  std::unique_ptr<Session> session_;
};

TEST_F(LeftOver, AreFinishedWhileOthersAreServed) {
  files_.add_file("slow", "");
  files_.add_file("fast", "");
  files_.block_lookup("slow");
  leave(FUSE_LOOKUP, "slow\0"s);

  const auto started = std::async(std::launch::async, [this] { start(); });
  ASSERT_TRUE(files_.wait_until_waiting("slow", 1));
  EXPECT_EQ(kernel_.ask(FUSE_LOOKUP, kRoot, "fast\0"s).error, 0);
  EXPECT_EQ(files_.finished(), 0U);

  files_.release("slow");
  const auto late = kernel_.receive();
  ASSERT_TRUE(late);
  EXPECT_EQ(late->unique, kLeft);
  EXPECT_EQ(late->error, 0);
  started.wait();
  session_->stop();
  EXPECT_EQ(files_.finished(), 1U);
  EXPECT_EQ(counted("fuse.resumed"), 1U);
}

TEST_F(LeftOver, AreSaidToBeFinishedWhenThereAreNone) {
  start();
  EXPECT_EQ(files_.finished(), 1U);
}

TEST_F(LeftOver, AreGivenUpWhenTwoWorkersHungOverThem) {
  region_.page().last_was_hung = 1;
  leave(FUSE_MKDIR, std::string(sizeof(fuse_mkdir_in), '\0') + "made\0"s).deaths = 1;

  start();

  const auto answer = kernel_.receive();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->unique, kLeft);
  EXPECT_EQ(answer->error, -EIO);
  session_->stop();
  EXPECT_EQ(kernel_.receive(0), std::nullopt);
  EXPECT_EQ(counted("fuse.mkdir"), 0U);
  EXPECT_EQ(counted("fuse.given_up"), 1U);
  EXPECT_EQ(files_.finished(), 1U);
}

TEST_F(LeftOver, AreTriedOnceMoreAfterAWorkerCrashed) {
  region_.page().last_status = SIGSEGV;
  leave(FUSE_MKDIR, std::string(sizeof(fuse_mkdir_in), '\0') + "made\0"s);
  start();
  EXPECT_EQ(kernel_.receive()->error, 0);
}

TEST_F(LeftOver, AreNotGivenUpWhenSomebodyKilledTheWorker) {
  leave(FUSE_MKDIR, std::string(sizeof(fuse_mkdir_in), '\0') + "made\0"s).deaths = 1;
  start();
  EXPECT_EQ(kernel_.receive()->error, 0);
  EXPECT_EQ(counted("fuse.given_up"), 0U);
}

TEST_F(LeftOver, AreAskedForWhenNobodyHadBegunThem) {
  leave(FUSE_MKDIR, std::string(sizeof(fuse_mkdir_in), '\0') + "made\0"s, false);

  start();

  const auto question = kernel_.receive();
  ASSERT_TRUE(question);
  EXPECT_EQ(question->unique, kLeft | 1) << "the reply to an interrupt";
  EXPECT_EQ(question->error, 0);
  EXPECT_EQ(question->body, "");
  const auto answer = kernel_.receive();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->unique, kLeft);
  EXPECT_EQ(answer->error, 0);
}

TEST_F(LeftOver, GiveNoReferencesBackThatMayBeAnEarlierRequests) {
  const auto node = files_.add_file("a", "");
  std::string body(sizeof(fuse_batch_forget_in), '\0');
  fuse_batch_forget_in head{300, 0};
  std::memcpy(body.data(), &head, sizeof head);
  const fuse_forget_one one{static_cast<uint64_t>(node), 1};
  for (int i = 0; i < 300; ++i) body.append(reinterpret_cast<const char*>(&one), sizeof one);
  leave(FUSE_BATCH_FORGET, body, false);

  start();
  session_->stop();

  EXPECT_EQ(counted("fuse.torn"), 1U);
  EXPECT_EQ(counted("fuse.forget"), 0U);
  EXPECT_EQ(files_.finished(), 1U);
}

}  // namespace
}  // namespace inductorfs::fuse
