// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
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

/// A Guarded for values that are read far more often than written: readers share the lock. A writer waits for the
/// readers that came before it only: those that come later wait for the writer, or overlapping readers would keep it
/// out for ever (std::shared_mutex lets them; docs/semantics/threats-of-delay.md). And a writer lets those in
/// first who waited when it came: who writes again at once, piece by piece, would keep them out to its end, for a mutex
/// that is taken again is handed on to nobody. A reader may read again while it reads; nobody may write then.
/// Safe for concurrent use.
template <typename T>
class SharedGuarded {
 public:
  template <typename... Args>
  explicit SharedGuarded(Args&&... args) : value_(std::forward<Args>(args)...) {}
  SharedGuarded(const SharedGuarded&) = delete;
  SharedGuarded& operator=(const SharedGuarded&) = delete;

  template <typename F>
  decltype(auto) read(F&& use) const {
    const Reader reader(*this);
    return std::forward<F>(use)(value_);
  }
  template <typename F>
  decltype(auto) write(F&& use) {
    const Writer writer(*this);
    return std::forward<F>(use)(value_);
  }

 private:
  /// A reader passes through `turn_` while a writer waits or writes, unless this thread reads such a value already: the
  /// writer waits for it then.
  class Reader {
   public:
    explicit Reader(const SharedGuarded& guarded) : guarded_(guarded) {
      std::unique_lock turn(guarded_.turn_, std::defer_lock);
      const bool waits = reading_ == 0 && guarded_.writers_.load(std::memory_order_relaxed) > 0;
      if (waits) {
        guarded_.waited_.fetch_add(1);
        turn.lock();
      }
      guarded_.mutex_.lock_shared();
      ++reading_;
      if (!waits) return;
      guarded_.passed_.fetch_add(1);
      guarded_.passed_.notify_all();
    }
    ~Reader() {
      --reading_;
      guarded_.mutex_.unlock_shared();
    }
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;

   private:
    const SharedGuarded& guarded_;
  };

  class Writer {
   public:
    explicit Writer(SharedGuarded& guarded) : guarded_(guarded) {
      const unsigned waited = guarded_.waited_.load();
      for (unsigned passed = guarded_.passed_.load(); static_cast<int>(waited - passed) > 0;
           passed = guarded_.passed_.load()) {
        guarded_.passed_.wait(passed);
      }
      guarded_.writers_.fetch_add(1, std::memory_order_relaxed);
      guarded_.turn_.lock();
      guarded_.mutex_.lock();
    }
    ~Writer() {
      guarded_.mutex_.unlock();
      guarded_.turn_.unlock();
      guarded_.writers_.fetch_sub(1, std::memory_order_relaxed);
    }
    Writer(const Writer&) = delete;
    Writer& operator=(const Writer&) = delete;

   private:
    SharedGuarded& guarded_;
  };

  static inline constinit thread_local int reading_ = 0;  ///< reads of this thread, of all values of this type
  std::atomic<int> writers_{0};              ///< those that wait or write; readers look before they take the turn
  mutable std::atomic<unsigned> waited_{0};  ///< readers that ever had to wait for the turn
  mutable std::atomic<unsigned> passed_{0};  ///< those of them that came in; as many more will as `waited_` is ahead
  mutable std::mutex turn_;                  ///< held by a writer until it is done
  mutable std::shared_mutex mutex_;
  T value_;
};

}  // namespace inductorfs
