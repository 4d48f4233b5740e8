// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/thread.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <exception>
#include <system_error>
#include <vector>

#include "inductorfs/base/activity.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/base/log.h"
#include "inductorfs/base/result.h"

namespace inductorfs {
namespace {

constexpr size_t kNameLimit = 15;
/// How long an idle worker sleeps at most before it looks again; any finite span does.
constexpr std::chrono::hours kIdleSpan{1};

sigset_t all_but_faults() {
  sigset_t set;
  sigfillset(&set);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&set, fault);
  return set;
}

/// A thread inherits the mask of its maker: blocked before it exists, no signal can hit it early. Restores on exit.
/// Confined to the constructing thread.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    const sigset_t blocked = all_but_faults();
    INDUCTORFS_CHECK(pthread_sigmask(SIG_SETMASK, &blocked, &before_) == 0);
  }
  ~SignalsBlocked() { INDUCTORFS_CHECK(pthread_sigmask(SIG_SETMASK, &before_, nullptr) == 0); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

[[noreturn]] void end_process_of(const std::string& thread, const char* exception) {
  log::error("base.thread_exception", {{"thread", thread}, {"error", exception}});
  std::abort();
}

void run_entry(const std::string& name, const std::function<void(std::stop_token)>& entry, std::stop_token stop) {
  // Only the name is lost when this fails.
  (void)pthread_setname_np(pthread_self(), name.c_str());
  try {
    entry(std::move(stop));
  } catch (const std::exception& failure) {
    end_process_of(name, failure.what());
  } catch (...) {
    end_process_of(name, "unknown exception");
  }
}

std::jthread start_named(std::string name, std::function<void(std::stop_token)> entry) {
  name.resize(std::min(name.size(), kNameLimit));
  const SignalsBlocked blocked;
  return std::jthread([name = std::move(name), entry = std::move(entry)](std::stop_token stop) {
    run_entry(name, entry, std::move(stop));
  });
}

}  // namespace

std::jthread start_thread(std::string name, std::function<void(std::stop_token)> entry) {
  const std::string shown = name;
  try {
    return start_named(std::move(name), std::move(entry));
  } catch (const std::exception& failure) {
    log::error("base.thread_start_failed", {{"thread", shown}, {"error", failure.what()}});
    std::abort();
  }
}

std::optional<std::jthread> try_start_thread(std::string name, std::function<void()> entry) {
  try {
    return start_named(std::move(name), [entry = std::move(entry)](const std::stop_token&) { entry(); });
  } catch (const std::system_error&) {
    return std::nullopt;
  }
}

struct WorkerPool::State {
  struct Queue {
    std::deque<std::function<void()>> work;
    bool stopping = false;
  };
  using Threads = std::vector<std::jthread>;

  explicit State(size_t limit) : queue_limit(limit) {}

  /// Empty when the pool stops and nothing is left to do.
  std::function<void()> take() {
    for (;;) {
      bool ended = false;
      auto work = queue.wait_until(
          std::chrono::steady_clock::now() + kIdleSpan,
          [](const Queue& state) { return state.stopping || !state.work.empty(); },
          [&](Queue& state) {
            std::function<void()> first;
            if (!state.work.empty()) {
              first = std::move(state.work.front());
              state.work.pop_front();
            } else {
              ended = state.stopping;
            }
            return first;
          });
      if (work || ended) return work;
    }
  }

  const size_t queue_limit;
  Guarded<Queue> queue;
  Guarded<Threads> threads;
};

WorkerPool::WorkerPool(const std::string& name, size_t threads, size_t queue_limit)
    : state_(std::make_unique<State>(queue_limit)) {
  INDUCTORFS_CHECK(threads > 0);
  State* state = state_.get();
  for (size_t i = 0; i < threads; ++i) {
    auto thread = start_thread(name, [state](const std::stop_token&) {
      while (auto work = state->take()) {
        const Activity activity("works off its queue");
        work();
      }
    });
    state_->threads.with([&](State::Threads& running) { running.push_back(std::move(thread)); });
  }
}

WorkerPool::~WorkerPool() { stop(); }

bool WorkerPool::submit(std::function<void()> work) {
  INDUCTORFS_CHECK(work != nullptr);
  return state_->queue.notify_with([&](State::Queue& queue) {
    if (queue.stopping || queue.work.size() >= state_->queue_limit) return false;
    queue.work.push_back(std::move(work));
    return true;
  });
}

size_t WorkerPool::queued() const {
  return state_->queue.with([](const State::Queue& queue) { return queue.work.size(); });
}

void WorkerPool::stop() {
  state_->queue.notify_with([](State::Queue& queue) { queue.stopping = true; });
  // Joined outside the lock: the vector's destructor waits for the workers.
  State::Threads finished = state_->threads.with([](State::Threads& threads) { return std::move(threads); });
  finished.clear();
}

}  // namespace inductorfs
