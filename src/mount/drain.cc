// SPDX-License-Identifier: Apache-2.0
#include "mount/drain.h"

#include "inductorfs/base/log.h"
#include "inductorfs/mount/layers.h"

namespace inductorfs::mount {
namespace {

/// How often it is asked whether to hurry.
constexpr Milliseconds kSlice{100};

/// The last reason why not all has gone; nothing when all has.
Result<void> publish_all(Layers& layers, Deadline deadline, const std::function<bool()>& cancelled) {
  while (true) {
    // The first slice has begun before the deadline is looked at: an empty queue is always seen as such.
    Result<void> done = layers.file_system->sync(deadline.earlier(kSlice));
    if (done || deadline.passed() || cancelled()) return done;
    if (done.error().code() == ErrorCode::kNoSpace || done.error().code() == ErrorCode::kBusy) return done;
    // Away: whatever is waited for will not come in a time that an end may take.
    if (!layers.remote.operators->health().reachable || layers.catalog->frozen()) return done;
  }
}

}  // namespace

void drain(Layers& layers, Deadline deadline, const std::function<bool()>& cancelled) {
  const SteadyTime begin = std::chrono::steady_clock::now();
  const uint64_t queued_before = layers.catalog->status().queued;
  const Result<void> done = publish_all(layers, deadline, cancelled);
  const auto took = std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - begin);
  const catalog::CatalogStatus after = layers.catalog->status();
  const uint64_t unsealed = layers.file_system->inspection().status().unsealed;
  const uint64_t gone = queued_before > after.queued ? queued_before - after.queued : 0;
  log::info("mount.drained", {{"groups", gone}, {"ms", static_cast<int64_t>(took.count())}, {"all", done.has_value()}});
  if (done) return;
  log::warning("mount.left_queued", {{"groups", after.queued},
                                     {"unsealed", unsealed},
                                     {"why", done.error().what()},
                                     {"action", "published after the next mount"}});
}

}  // namespace inductorfs::mount
