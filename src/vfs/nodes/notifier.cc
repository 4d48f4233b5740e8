// SPDX-License-Identifier: Apache-2.0
#include "vfs/nodes/notifier.h"

#include <limits>
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
  kernel_ = &kernel;
  thread_ = start_thread("notify", [this, &kernel](const std::stop_token& stop) { run(stop, kernel); });
}

void Notifier::stop() {
  kernel_ = nullptr;
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

void Notifier::forget_name(NodeId parent, std::string name) { forget_at_once({{parent, std::move(name)}}); }

void Notifier::forget_content(NodeId node) { forget_at_once({{node, {}}}); }

void Notifier::forget_at_once(const std::vector<Notice>& notices) {
  (void)try_add(notices, std::numeric_limits<size_t>::max());
}

void Notifier::wish_forgotten(NodeId parent, std::string name) {
  const Notice notice{parent, std::move(name)};
  (void)try_add({&notice, 1});  // the next eviction wishes again
}

void Notifier::wish_content_forgotten(NodeId node) {
  const Notice notice{node, {}};
  (void)try_add({&notice, 1});  // a listing that stays shows a name that is not there, which is looked up in vain
}

void Notifier::forget_listing_now(NodeId directory) const {
  if (KernelCache* const kernel = kernel_) kernel->forget_content(directory);
}

size_t Notifier::try_add(std::span<const Notice> notices, size_t most) {
  return state_.notify_with([&](State& state) {
    if (state.stopped) return notices.size();
    size_t added = 0;
    for (; added < notices.size() && state.queue.size() < most; ++added) {
      if (state.queued.insert(notices[added]).second) state.queue.push_back(notices[added]);
    }
    return added;
  });
}

void Notifier::forget_all(const std::vector<Notice>& notices) {
  std::span<const Notice> left(notices);
  while (true) {
    left = left.subspan(try_add(left));
    if (left.empty()) return;
    (void)state_.wait_until(
        std::chrono::steady_clock::now() + kWaitStep,
        [](const State& state) { return state.stopped || state.queue.size() < kLimit; },
        [](const State&) { return true; });
  }
}

void Notifier::run(const std::stop_token& stop, KernelCache& kernel) {
  while (!stop.stop_requested()) {
    bool made_room = false;
    const auto next = state_.wait_until(
        std::chrono::steady_clock::now() + kWaitStep,
        [](const State& state) { return state.stopped || !state.queue.empty(); },
        [&](State& state) -> std::optional<Notice> {
          if (state.queue.empty()) return std::nullopt;
          made_room = state.queue.size() >= kLimit;
          Notice notice = std::move(state.queue.front());
          state.queue.pop_front();
          // Out of the set before the kernel is told: a change from here on needs a notice of its own.
          state.queued.erase(notice);
          return notice;
        });
    if (!next) continue;
    const Activity activity("tells the kernel what to forget");
    if (made_room) state_.notify_with([](State&) {});
    if (next->name.empty()) {
      kernel.forget_content(next->node);
    } else {
      kernel.forget_name(next->node, next->name);
    }
  }
}

}  // namespace inductorfs::vfs
