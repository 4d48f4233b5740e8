// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "inductorfs/base/guarded.h"
#include "inductorfs/takeover/request_slots.h"

/// Requests that take long must not keep a mount's other users waiting, however many there are of them.
namespace inductorfs::fuse {

/// The threads that a session has for a while, beside its own, because each of those has been at one request for long.
/// A thread of its own sees to that, which sleeps while somebody reads requests. Safe for concurrent use; start() and
/// stop() need external synchronisation.
class SpareThreads {
 public:
  /// `serve` is what a spare thread does with its slot; it ends when may_end() says so, or with the session.
  SpareThreads(const takeover::RequestSlots& slots, std::function<void(takeover::Slot&)> serve);
  ~SpareThreads() { stop(); }
  SpareThreads(const SpareThreads&) = delete;
  SpareThreads& operator=(const SpareThreads&) = delete;

  /// `resumed`: an earlier worker may have left requests and memory in the slots. Returns the slots of requests for
  /// which there is no thread, so that the caller finishes them.
  [[nodiscard]] std::vector<takeover::Slot*> start(bool resumed);
  /// Joins all, which must be about to end. Idempotent.
  void stop();

  /// Said by each thread that serves, before it reads its first request and after it has answered one.
  void note_reading() noexcept { reading_.fetch_add(1); }
  /// Said by a thread that has got a request: it reads no other one meanwhile.
  void note_serving() noexcept {
    if (reading_.fetch_sub(1) == 1 && !watching_.load()) wake();
  }
  /// Said by a thread that ends for another reason.
  void note_ended() noexcept { reading_.fetch_sub(1); }
  /// For a spare thread that reads: true when at least so many others read. It does not read any more then.
  [[nodiscard]] bool may_end(size_t others) noexcept;
  /// How many threads are at a request, or about to read one.
  [[nodiscard]] size_t serving() const noexcept {
    const int64_t idle = reading_.load(std::memory_order_relaxed);
    return regular() + running_.load(std::memory_order_relaxed) - static_cast<size_t>(std::max<int64_t>(idle, 0));
  }
  /// How many threads a session has without any of these.
  [[nodiscard]] size_t regular() const { return slots_.threads() - slots_.spares(); }

  /// A request that takes so long is no ordinary one: from then on its thread does not count.
  static constexpr std::chrono::milliseconds kLong{20};
  /// A spare thread that got no request for so long looks whether it may end.
  static constexpr std::chrono::milliseconds kRest{1000};

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Spare {
    std::jthread thread;
    std::atomic<bool> ended{false};
  };
  /// What a thread is at, and since when it has been seen at that.
  struct Seen {
    uint64_t request = 0;
    Time since;
  };
  struct Wishes {
    bool look = false;
    bool stop = false;
  };

  void wake() noexcept;
  void watch();
  [[nodiscard]] bool all_take_long(Time now);
  void add();
  [[nodiscard]] bool add_at(size_t index);
  void join_ended();

  const takeover::RequestSlots& slots_;
  const std::function<void(takeover::Slot&)> serve_;
  std::atomic<int64_t> reading_{0};
  std::atomic<size_t> running_{0};    ///< spare threads that there are
  std::atomic<bool> watching_{true};  ///< the watching thread looks by itself
  Guarded<Wishes> wishes_;
  // Confined to the watching thread while there is one.
  std::vector<std::unique_ptr<Spare>> spares_;  ///< by the number of the slot; none: it is free
  std::vector<Seen> seen_;                      ///< of all threads
  size_t at_once_ = 1;                          ///< how many are added next
  std::jthread watcher_;
};

}  // namespace inductorfs::fuse
