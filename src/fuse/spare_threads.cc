// SPDX-License-Identifier: Apache-2.0
#include "spare_threads.h"

#include <algorithm>
#include <string>
#include <utility>

#include "inductorfs/base/log.h"
#include "inductorfs/base/thread.h"

namespace inductorfs::fuse {
namespace {

constexpr std::chrono::milliseconds kLook{10};
/// How long the watching thread sleeps at most while there is nothing to see; any finite span does.
constexpr std::chrono::hours kIdle{1};

}  // namespace

SpareThreads::SpareThreads(const takeover::RequestSlots& slots, std::function<void(takeover::Slot&)> serve)
    : slots_(slots), serve_(std::move(serve)), spares_(slots.spares()), seen_(slots.threads()) {}

std::vector<takeover::Slot*> SpareThreads::start(bool resumed) {
  std::vector<takeover::Slot*> unserved;
  for (size_t i = 0; resumed && i < spares_.size(); ++i) {
    takeover::Slot& slot = slots_.of_thread(regular() + i);
    if (slot.length() == 0) {
      slots_.give_back(regular() + i);  // its worker was killed, or gave each slot a thread for good
    } else if (!add_at(i)) {
      unserved.push_back(&slot);
    }
  }
  if (!spares_.empty()) {
    watcher_ = start_thread("fuse-watch", [this](const std::stop_token&) { watch(); });
  }
  return unserved;
}

void SpareThreads::stop() {
  wishes_.notify_with([](Wishes& wishes) { wishes.stop = true; });
  if (watcher_.joinable()) watcher_.join();
  for (size_t i = 0; i < spares_.size(); ++i) {
    if (spares_[i] == nullptr) continue;
    spares_[i].reset();  // joins
    running_.fetch_sub(1);
    slots_.give_back(regular() + i);
  }
}

bool SpareThreads::may_end(size_t others) noexcept {
  int64_t reading = reading_.load();
  while (reading > static_cast<int64_t>(others)) {
    if (reading_.compare_exchange_weak(reading, reading - 1)) return true;
  }
  return false;
}

void SpareThreads::wake() noexcept {
  if (watching_.exchange(true)) return;
  wishes_.notify_with([](Wishes& wishes) { wishes.look = true; });
}

void SpareThreads::watch() {
  for (bool rested = false;;) {
    join_ended();
    if (reading_.load() > 0) {
      at_once_ = 1;
    } else if (all_take_long(std::chrono::steady_clock::now())) {
      add();
    }
    // After a rest it looks again in any case: at each request of a session with one thread nobody is left to read.
    bool rests = !rested && reading_.load() > 0;
    if (rests) {
      watching_ = false;
      // Whoever got a request meanwhile may not have seen that.
      if (reading_.load() == 0) {
        watching_ = true;
        rests = false;
      }
    }
    const auto until = std::chrono::steady_clock::now() + (rests ? std::chrono::milliseconds(kIdle) : kLook);
    const bool stop = wishes_.wait_until(
        until, [&](const Wishes& wishes) { return wishes.stop || (rests && wishes.look); },
        [](Wishes& wishes) {
          wishes.look = false;
          return wishes.stop;
        });
    if (stop) return;
    watching_ = true;
    rested = rests;
  }
}

bool SpareThreads::all_take_long(Time now) {
  bool all = true;
  for (size_t i = 0; i < seen_.size(); ++i) {
    if (i >= regular() && spares_[i - regular()] == nullptr) continue;
    const uint64_t request = slots_.of_thread(i).served.load(std::memory_order_acquire);
    if (request != seen_[i].request) seen_[i] = {request, now};
    all = all && request != 0 && now - seen_[i].since >= kLong;
  }
  return all;
}

/// Twice as many each time: whoever keeps all threads busy may have many such requests.
void SpareThreads::add() {
  size_t added = 0;
  for (size_t i = 0; i < spares_.size() && added < at_once_; ++i) {
    if (spares_[i] != nullptr) continue;
    if (!add_at(i)) break;
    ++added;
  }
  at_once_ = std::min(2 * at_once_, spares_.size());
  if (added > 0) return;
  log::write_limited(log::Level::kWarning, "fuse.threads_busy",
                     {{"why", "each thread has been at one request for long, and there can be no more"},
                      {"threads", static_cast<uint64_t>(slots_.threads())}});
}

bool SpareThreads::add_at(size_t index) {
  takeover::Slot& slot = slots_.of_thread(regular() + index);
  if (!slots_.prepare(regular() + index)) return false;
  auto spare = std::make_unique<Spare>();
  running_.fetch_add(1);  // first: nobody may take it for fewer than there are (serving())
  auto thread = try_start_thread("spare-" + std::to_string(index), [this, &slot, &ended = spare->ended] {
    serve_(slot);
    ended = true;
    wishes_.notify_with([](Wishes& wishes) { wishes.look = true; });
  });
  if (!thread) {
    running_.fetch_sub(1);
    if (slot.length() == 0) slots_.give_back(regular() + index);
    return false;
  }
  spare->thread = std::move(*thread);
  spares_[index] = std::move(spare);
  return true;
}

void SpareThreads::join_ended() {
  for (size_t i = 0; i < spares_.size(); ++i) {
    if (spares_[i] == nullptr || !spares_[i]->ended) continue;
    spares_[i].reset();  // joins
    running_.fetch_sub(1);
    seen_[regular() + i] = {};
    slots_.give_back(regular() + i);
  }
}

}  // namespace inductorfs::fuse
