// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>

#include <csignal>
#include <cstring>
#include <thread>

#include "fake_file_system.h"
#include "fake_kernel.h"
#include "inductorfs/fuse/session.h"
#include "inductorfs/takeover/request_slots.h"
#include "support/patience.h"

namespace inductorfs::fuse {

using std::string_literals::operator""s;
inline constexpr uint64_t kRoot = 1;
inline constexpr size_t kThreads = 2;
inline constexpr size_t kSpares = 8;

/// A session all of whose threads are to be at requests that take long.
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
    options.requests_finished = [this] { files_.requests_finished(); };
    options.user_requests = user_requests_;
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
    // The threads rest for a second before they end: whoever asks without a pause keeps a core for all of it.
    while (bytes_in_memory() > bytes && std::chrono::steady_clock::now() < until) (void)::poll(nullptr, 0, 1);
    return bytes_in_memory() <= bytes;
  }

  takeover::Region region_ = std::move(*takeover::Region::create(kThreads, kSpares));
  takeover::RequestSlots slots_{region_};
  size_t user_requests_ = 0;
  testing::FakeKernel kernel_;
  testing::FakeFileSystem files_;
  Counters counters_;
  std::atomic<int> ended_{0};
  std::unique_ptr<Session> session_;
};

}  // namespace inductorfs::fuse
