// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/common/background.h"

#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <deque>
#include <map>
#include <system_error>
#include <thread>
#include <utility>

#include "inductorfs/base/guarded.h"

namespace inductorfs::fingerprint {
namespace {

/// A job's ranks ask for the same few packages; far more is somebody's mistake, or attack.
constexpr size_t kWaitingOfOne = 64;
constexpr size_t kWaiting = 1024;

struct Item {
  uid_t user = 0;
  std::function<void()> work;
};

struct Queue {
  std::deque<Item> waiting;
  std::map<uid_t, size_t> running;  ///< threads at work for each user
  size_t threads = 0;
  bool stopped = false;
};

}  // namespace

struct Background::State {
  State(std::string thread_name, size_t most, size_t most_of_one)
      : name(std::move(thread_name)), threads(most), of_one(most_of_one) {}

  /// Takes the first item whose user may have another thread. Requires: the queue's lock.
  [[nodiscard]] bool take(Queue& from, Item& item) const {
    if (from.stopped) return false;
    const auto next = std::find_if(from.waiting.begin(), from.waiting.end(), [&](const Item& one) {
      const auto running = from.running.find(one.user);
      return running == from.running.end() || running->second < of_one;
    });
    if (next == from.waiting.end()) return false;
    item = std::move(*next);
    from.waiting.erase(next);
    ++from.running[item.user];
    return true;
  }

  const std::string name;
  const size_t threads;
  const size_t of_one;
  Guarded<Queue> queue;
};

namespace {

/// Runs `item`, and then whatever waits and may run.
template <typename State>
void work_on(const std::shared_ptr<State>& state, Item item) {
  for (bool more = true; more;) {
    item.work();
    const uid_t user = item.user;
    item = {};  // what the work shares goes before the thread is counted as free
    more = state->queue.with([&](Queue& queue) {
      if (--queue.running[user] == 0) queue.running.erase(user);
      if (state->take(queue, item)) return true;
      --queue.threads;
      return false;
    });
  }
}

/// False when the system has no thread for it.
template <typename State>
bool start_thread_for(const std::shared_ptr<State>& state, Item item) {
  const uid_t user = item.user;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = true;
  try {
    std::thread([state, item = std::move(item)]() mutable {
      (void)pthread_setname_np(pthread_self(), state->name.c_str());  // only people read it
      work_on(state, std::move(item));
    }).detach();
  } catch (const std::system_error&) {  // a limit of threads: what waits for this work is told that there is none
    started = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (started) return true;
  state->queue.with([&](Queue& queue) {
    if (--queue.running[user] == 0) queue.running.erase(user);
    --queue.threads;
  });
  return false;
}

}  // namespace

Background::Background(std::string name, size_t threads, size_t of_one)
    : state_(std::make_shared<State>(std::move(name), threads, of_one)) {}

Background::~Background() {
  state_->queue.with([](Queue& queue) {
    queue.stopped = true;
    queue.waiting.clear();
  });
}

bool Background::run(uid_t user, std::function<void()> work) {
  Item item;
  bool starts = false;
  const bool taken = state_->queue.with([&](Queue& queue) {
    const auto waiting =
        std::count_if(queue.waiting.begin(), queue.waiting.end(), [&](const Item& one) { return one.user == user; });
    if (static_cast<size_t>(waiting) >= kWaitingOfOne || queue.waiting.size() >= kWaiting) return false;
    queue.waiting.push_back({user, std::move(work)});
    starts = queue.threads < state_->threads && state_->take(queue, item);
    if (starts) ++queue.threads;
    return true;
  });
  return starts ? start_thread_for(state_, std::move(item)) : taken;
}

}  // namespace inductorfs::fingerprint
