// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/mount/store_watch.h"

#include <utility>

#include "inductorfs/base/activity.h"
#include "inductorfs/base/thread.h"
#include "inductorfs/config/text.h"
#include "mount/processes/store_place.h"

namespace inductorfs::mount {

void StoreWatch::start() {
  thread_ = start_thread("store-watch", [this](const std::stop_token&) { run(); });
}

void StoreWatch::stop() {
  state_.notify_with([](State& state) { state.stopping = true; });
  if (thread_.joinable()) thread_.join();
}

void StoreWatch::run() {
  const auto is_due = [](const State& state) { return state.stopping || state.done != state.asked; };
  while (true) {
    const bool stopping = state_.wait_until(SteadyTime::max(), is_due, [](State& state) {
      state.begun = state.asked;
      state.began = std::chrono::steady_clock::now();
      state.since = std::time(nullptr);
      state.disk_answers = false;
      return state.stopping;
    });
    if (stopping) return;
    StoreNews news = look_at_store();
    state_.notify_with([&](State& state) {
      state.done = state.begun;
      state.news = std::move(news);
    });
  }
}

StoreNews StoreWatch::look_at_store() {
  StoreNews news;
  {
    const Activity activity("looks at the disk of --store");
    const std::string& store = settings_.store;
    const int lock = layers_.store->lock();
    const std::string writing = writing_trouble(store);
    if (const auto place = place_of_store(lock, store); !place) {
      news.usable = fail(place.error());
    } else if (!writing.empty()) {
      news.usable = fail(ErrorCode::kReadOnly, writing);
    }
    const auto counters = layers_.counters.snapshot();
    const auto without_room = counters.find("store.without_room");
    const bool takes_no_more = without_room != counters.end() && without_room->second > 0;
    for (std::string trouble : {place_trouble(lock, store, settings_.store_root), writing,
                                space_trouble(store, layers_.store->usage().free_floor, takes_no_more)}) {
      if (!trouble.empty()) news.troubles.push_back(std::move(trouble));
    }
  }
  state_.with([](State& state) { state.disk_answers = true; });
  const Activity activity("counts what waits for the disk of --store");
  news.usage = layers_.store->usage();
  news.catalog = layers_.catalog->status();
  news.files = layers_.file_system->inspection().status();
  return news;
}

StoreNews StoreWatch::silent(const State& state) const {
  const auto span = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - state.began);
  const std::string since = config::utc(state.since) + " (" + std::to_string(span.count()) + " s)";
  StoreNews news = state.news;
  news.silence =
      (state.disk_answers ? "a thread that holds what the daemon is asked for has waited for the disk of "
                            "--store since "
                          : "the disk of --store has not answered since ") +
      since + ": " + settings_.store +
      ": what waits for it goes on when it answers; look at that disk and at what serves it (dmesg), or remove "
      "the mount with inductorfs unmount";
  return news;
}

StoreNews StoreWatch::look() {
  SteadyTime until;
  const uint64_t mine = state_.notify_with([&](State& state) {
    const SteadyTime now = std::chrono::steady_clock::now();
    until = (state.begun != state.done ? state.began : now) + kLookPatience;
    return ++state.asked;
  });
  const auto is_done = [&](const State& state) { return state.stopping || state.done >= mine; };
  while (true) {
    // Behind a look that goes on the next one has its time, too, as long as each comes back.
    std::optional<StoreNews> news = state_.wait_until(until, is_done, [&](State& state) -> std::optional<StoreNews> {
      if (is_done(state) || state.begun == state.done) return state.news;
      if (state.began + kLookPatience <= until) return silent(state);
      until = state.began + kLookPatience;
      return std::nullopt;
    });
    if (news) return std::move(*news);
  }
}

Result<void> StoreWatch::answers() {
  StoreNews news = look();
  if (news.silence.empty()) return {};
  return fail(ErrorCode::kTimedOut, std::move(news.silence));
}

}  // namespace inductorfs::mount
