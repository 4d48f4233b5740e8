// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>
#include <utility>

namespace inductorfs {

/// A value that can only be touched while its lock is held. The only lock of this project: std::mutex outside this
/// header is a lint failure. A helper that needs the lock takes T& and is a function of the private state type, so
/// its signature proves that the lock is held.
///
/// Never hold one across a network call, a reply to the kernel or a wait for another thread (docs/architecture.md,
/// "Lock order"). Safe for concurrent use.
template <typename T>
class Guarded {
 public:
  template <typename... Args>
  explicit Guarded(Args&&... args) : value_(std::forward<Args>(args)...) {}
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  template <typename F>
  decltype(auto) with(F&& use) {
    std::unique_lock lock(mutex_);
    return std::forward<F>(use)(value_);
  }
  template <typename F>
  decltype(auto) with(F&& use) const {
    std::unique_lock lock(mutex_);
    return std::forward<F>(use)(value_);
  }
  /// As `with`, then wakes all threads in wait_until.
  template <typename F>
  decltype(auto) notify_with(F&& use) {
    struct Waker {
      std::condition_variable& condition;
      ~Waker() { condition.notify_all(); }
    };
    std::unique_lock lock(mutex_);
    Waker waker{changed_};
    return std::forward<F>(use)(value_);
  }
  /// Waits until `ready(value)` or the deadline, then calls `use(value)` with the lock still held in both cases.
  template <typename Ready, typename F>
  decltype(auto) wait_until(std::chrono::steady_clock::time_point deadline, Ready&& ready, F&& use) {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline, [&] { return ready(value_); });
    return std::forward<F>(use)(value_);
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  T value_;
};

/// As Guarded, for values that are read far more often than written. Safe for concurrent use.
template <typename T>
class SharedGuarded {
 public:
  template <typename... Args>
  explicit SharedGuarded(Args&&... args) : value_(std::forward<Args>(args)...) {}
  SharedGuarded(const SharedGuarded&) = delete;
  SharedGuarded& operator=(const SharedGuarded&) = delete;

  template <typename F>
  decltype(auto) read(F&& use) const {
    std::shared_lock lock(mutex_);
    return std::forward<F>(use)(value_);
  }
  template <typename F>
  decltype(auto) write(F&& use) {
    std::unique_lock lock(mutex_);
    return std::forward<F>(use)(value_);
  }

 private:
  mutable std::shared_mutex mutex_;
  T value_;
};

}  // namespace inductorfs
