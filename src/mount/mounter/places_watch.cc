// SPDX-License-Identifier: Apache-2.0
#include "mount/mounter/places_watch.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "inductorfs/base/activity.h"
#include "inductorfs/base/clock.h"
#include "inductorfs/base/log.h"
#include "inductorfs/base/mount_table.h"
#include "inductorfs/base/thread.h"
#include "inductorfs/places/bind.h"

namespace inductorfs::mount {
namespace {

constexpr Milliseconds kLooks{30'000};
constexpr Milliseconds kFirstPause{10};
constexpr Milliseconds kLastPause{1000};

}  // namespace

void PlacesWatch::start(bool begins) {
  // An earlier worker may have been told of a directory and killed.
  state_.with([&](State& state) { state = {begins, true, false}; });
  thread_ = start_thread("places", [this](const std::stop_token&) { run(); });
}

void PlacesWatch::stop() {
  state_.notify_with([](State& state) { state.stopping = true; });
  if (thread_.joinable()) thread_.join();
}

void PlacesWatch::removed() {
  state_.notify_with([](State& state) { state.drops = true; });
}

/// The directory is removed for the kernel when it has the worker's answer, so it is looked for again for a while.
void PlacesWatch::run() {
  const auto is_stopping = [this] { return state_.with([](const State& state) { return state.stopping; }); };
  const auto is_due = [](const State& state) { return state.stopping || state.shows || state.drops; };
  Deadline looks = Deadline::after(Milliseconds{0});
  Milliseconds pause = kFirstPause;
  while (true) {
    const SteadyTime next = looks.passed() ? SteadyTime::max() : Deadline::after(pause).at();
    const State due = state_.wait_until(next, is_due, [](State& state) {
      const State before = state;
      state.shows = state.drops = false;
      return before;
    });
    if (due.stopping) return;
    if (due.drops) looks = Deadline::after(kLooks);
    pause = due.drops ? kFirstPause : std::min(pause * 2, kLastPause);
    const Activity activity("has the mounter look at the places of users");
    const auto shown = due.shows ? mounter_.show_to(std::nullopt, is_stopping) : std::vector<std::string>();
    const bool is_removed = !due.shows && std::ranges::any_of(read_mount_table(), places::shows_removed);
    const Result<void> dropped = is_removed ? mounter_.drop_removed(is_stopping) : Result<void>();
    for (const Error* error : {dropped ? nullptr : &dropped.error(), shown ? nullptr : &shown.error()}) {
      const bool is_wrong = error != nullptr && error->code() != ErrorCode::kNotSupported && !is_stopping();
      if (is_wrong) log::warning("mount.places_not_looked_at", {{"why", error->what()}});
    }
  }
}

}  // namespace inductorfs::mount
