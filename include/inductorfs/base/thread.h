// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

namespace inductorfs {

/// Starts a joined thread with a name (at most 15 characters, as the kernel keeps them). An exception that reaches the
/// entry is logged and ends the process, because a half-dead daemon is worse than none. All signals are blocked in the
/// thread, except those that a fault of its own raises (SIGSEGV and the like).
[[nodiscard]] std::jthread start_thread(std::string name, std::function<void(std::stop_token)> entry);
/// The same for a thread that can be done without: nothing when the host has no room for it, a limit of threads.
[[nodiscard]] std::optional<std::jthread> try_start_thread(std::string name, std::function<void()> entry);

/// Owns a fixed number of threads that take work from one bounded queue. `submit` never blocks: it answers false when
/// the queue is full, and the caller decides (a prefetch is dropped, a fetch becomes a miss). The destructor runs what
/// is queued to its end and joins the threads. Safe for concurrent use.
class WorkerPool {
 public:
  WorkerPool(const std::string& name, size_t threads, size_t queue_limit);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  [[nodiscard]] bool submit(std::function<void()> work);
  [[nodiscard]] size_t queued() const;
  /// Runs what is queued, then joins the threads; submit() answers false from then on. Idempotent. One of the pool's
  /// own threads must not call it.
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace inductorfs
