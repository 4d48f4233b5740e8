// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

namespace inductorfs {

/// A joined thread with a name (at most 15 characters, as the kernel keeps them). Exceptions that reach the entry are
/// logged and end the process: a half-dead daemon is worse than none. All signals are blocked in it, but those that a
/// fault of its own raises (SIGSEGV and the like).
[[nodiscard]] std::jthread start_thread(std::string name, std::function<void(std::stop_token)> entry);

/// A fixed number of threads over one bounded queue. `submit` never blocks: it answers false when the queue is full,
/// and the caller decides (a prefetch is dropped, a fetch becomes a miss). Destruction runs what is queued to its
/// end and joins. Safe for concurrent use.
class WorkerPool {
 public:
  WorkerPool(const std::string& name, size_t threads, size_t queue_limit);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  [[nodiscard]] bool submit(std::function<void()> work);
  [[nodiscard]] size_t queued() const;
  /// Runs what is queued, then joins; submit answers false from then on. Idempotent. Not from one of its own threads.
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace inductorfs
