// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>
#include <utility>

namespace inductorfs {

/// Owns a value that can only be touched while its lock is held. It is the only lock of this project: std::mutex
/// outside this header is a lint failure. A helper that needs the lock takes T& and is a function of the private state
/// type, so its signature proves that the lock is held.
///
/// A caller must never hold the lock across a network call, a reply to the kernel or a wait for another thread
/// (docs/architecture.md, "Lock order"). Safe for concurrent use.
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
  /// Does what `with` does, then wakes all threads in wait_until.
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
  /// Waits until `ready(value)` or the deadline, then calls `use(value)`; the lock is still held in both cases.
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

/// A Guarded for values that are read far more often than written: readers share the lock. Safe for concurrent use.
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
