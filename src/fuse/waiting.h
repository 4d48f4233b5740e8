// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>
#include <sys/epoll.h>

#include <atomic>
#include <chrono>
#include <cstdint>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"

/// How a fuse thread waits for the next request: it polls for a moment, and then it sleeps.
namespace inductorfs::fuse {

/// Decides when a thread that finds no request polls instead of sleeping: one thread at a time, only while requests
/// follow each other closely, and not while others want the processor. A wake-up costs the caller more than the request
/// itself. Safe for concurrent use.
class Spinner {
  using Clock = std::chrono::steady_clock;

 public:
  explicit Spinner(std::chrono::microseconds span) : span_(span) {}

  void note_request() noexcept {
    const int64_t now = Clock::now().time_since_epoch().count();
    gap_.store(now - last_.exchange(now, std::memory_order_relaxed), std::memory_order_relaxed);
  }
  /// Polls with `try_once` (true ends the polling) for the span. Returns false when the thread should now sleep.
  template <typename TryOnce>
  bool spin(TryOnce&& try_once) noexcept {
    const auto span = std::chrono::duration_cast<Clock::duration>(span_);
    if (span.count() == 0 || gap_.load(std::memory_order_relaxed) > kCloseFactor * span.count()) return false;
    if (Clock::now().time_since_epoch().count() < rest_until_.load(std::memory_order_relaxed)) return false;
    if (busy_.exchange(true, std::memory_order_acquire)) return false;
    const auto until = Clock::now() + span;
    bool ended = false;
    for (auto now = Clock::now(); !ended && now < until;) {
      // Our answer woke the caller, perhaps on this very processor: without this it waits until we sleep (measured on
      // a busy host: 54 us a request with a span of 50, instead of 4).
      (void)sched_yield();
      const auto back = Clock::now();
      if (back - now > kUncontendedYield) {
        // Somebody computes here. A compile that uses every processor gets them, and no thread of ours turns on one.
        rest_until_.store((back + kRest).time_since_epoch().count(), std::memory_order_relaxed);
        ended = try_once();
        break;
      }
      ended = try_once();
      now = Clock::now();
    }
    busy_.store(false, std::memory_order_release);
    return ended;
  }

 private:
  static constexpr int64_t kCloseFactor = 4;
  /// A yield when no other thread wants the processor takes less than a microsecond.
  static constexpr std::chrono::microseconds kUncontendedYield{20};
  static constexpr std::chrono::milliseconds kRest{5};
  const std::chrono::microseconds span_;
  std::atomic<int64_t> last_{0};
  std::atomic<int64_t> gap_{INT64_MAX};
  std::atomic<int64_t> rest_until_{INT64_MIN};
  std::atomic<bool> busy_{false};
};

/// Sleeps until the device has a request, or the session is to stop. Confined to one fuse thread.
class Sleeper {
 public:
  /// Uses EPOLLEXCLUSIVE: a request wakes one of the threads, as with a blocking read, and not all of them.
  Sleeper(int device, int stop) : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    add(device, EPOLLIN | EPOLLEXCLUSIVE);
    add(stop, EPOLLIN);
  }
  /// At most so many milliseconds, -1: without end. False: it was so long. A wake-up that comes as that ends is not
  /// lost: the kernel then says so, or wakes another thread.
  [[nodiscard]] bool sleep(int milliseconds) const {
    epoll_event event{};
    return epoll_wait(epoll_.get(), &event, 1, milliseconds) != 0;  // whatever woke us: the caller looks
  }

 private:
  void add(int fd, uint32_t events) {
    epoll_event event{};
    event.events = events;
    INDUCTORFS_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0);
  }
  Fd epoll_;
};

}  // namespace inductorfs::fuse
