// SPDX-License-Identifier: Apache-2.0
#include "vfs/read/notifier.h"

#include <optional>

#include "inductorfs/base/activity.h"
#include "inductorfs/base/clock.h"
#include "inductorfs/base/thread.h"

namespace inductorfs::vfs {
namespace {

constexpr Milliseconds kWaitStep{500};

}  // namespace

void Notifier::start(KernelCache& kernel) {
  state_.with([](State& state) { state.stopped = false; });
  thread_ = start_thread("notify", [this, &kernel](const std::stop_token& stop) { run(stop, kernel); });
}

void Notifier::stop() {
  state_.notify_with([](State& state) {
    state.stopped = true;
    state.queue.clear();
    state.queued.clear();
  });
  if (thread_.joinable()) {
    thread_.request_stop();
    thread_.join();
  }
}

void Notifier::forget_name(NodeId parent, std::string name) { add({parent, std::move(name)}); }

void Notifier::forget_content(NodeId node) { add({node, {}}); }

void Notifier::wish_forgotten(NodeId parent, std::string name) {
  (void)try_add({parent, std::move(name)});  // the next eviction wishes again
}

void Notifier::wish_content_forgotten(NodeId node) {
  (void)try_add({node, {}});  // a listing that stays shows a name that is not there, which is looked up in vain
}

bool Notifier::try_add(const Notice& notice) {
  return state_.notify_with([&](State& state) {
    if (state.stopped) return true;
    if (state.queue.size() >= kLimit) return false;
    if (state.queued.insert(notice).second) state.queue.push_back(notice);
    return true;
  });
}

void Notifier::add(const Notice& notice) {
  while (!try_add(notice)) {
    (void)state_.wait_until(
        std::chrono::steady_clock::now() + kWaitStep,
        [](const State& state) { return state.stopped || state.queue.size() < kLimit; },
        [](const State&) { return true; });
  }
}

void Notifier::run(const std::stop_token& stop, KernelCache& kernel) {
  while (!stop.stop_requested()) {
    const auto next = state_.wait_until(
        std::chrono::steady_clock::now() + kWaitStep,
        [](const State& state) { return state.stopped || !state.queue.empty(); },
        [](State& state) -> std::optional<Notice> {
          if (state.queue.empty()) return std::nullopt;
          Notice notice = std::move(state.queue.front());
          state.queue.pop_front();
          // Out of the set before the kernel is told: a change from here on needs a notice of its own.
          state.queued.erase(notice);
          return notice;
        });
    if (!next) continue;
    const Activity activity("tells the kernel what to forget");
    state_.notify_with([](State&) {});
    if (next->name.empty()) {
      kernel.forget_content(next->node);
    } else {
      kernel.forget_name(next->node, next->name);
    }
  }
}

}  // namespace inductorfs::vfs
