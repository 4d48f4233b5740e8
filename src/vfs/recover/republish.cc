// SPDX-License-Identifier: Apache-2.0
#include "vfs/recover/republish.h"

#include <sys/stat.h>

#include <algorithm>
#include <random>

#include "inductorfs/base/log.h"
#include "inductorfs/layout/layout.h"
#include "vfs/tree/parcel_mark.h"
#include "vfs/tree/view_files.h"

namespace inductorfs::vfs {
namespace {

/// Hosts that lost the same do not all come at once.
constexpr Milliseconds kSpread{1'000};
/// What waits to be queued at most, so that a job's new files come soon all the same.
constexpr size_t kWaitingMost = 256;
constexpr Milliseconds kStep{20};

void rest(Milliseconds span, const std::stop_token& stop) {
  Guarded<bool> ended(false);
  const std::stop_callback wake(stop, [&ended] { ended.notify_with([](bool& now) { now = true; }); });
  const auto is_over = [](bool now) { return now; };
  (void)ended.wait_until(std::chrono::steady_clock::now() + span, is_over, is_over);
}

}  // namespace

void Republish::run_if_due(const std::stop_token& stop) {
  const uint64_t lost = catalog_.lost_tails();
  if (lost == done_.with([](uint64_t done) { return done; })) return;
  // While nothing is shown, nothing tells what the index lacks.
  if (catalog_.frozen() || !catalog_.wait_synced(Deadline::after(Milliseconds(0)))) return;
  std::random_device seed;
  rest(kSpread * (seed() % 100) / 100, stop);
  queued_ = 0;
  look_below("", stop);
  if (stop.stop_requested() || catalog_.frozen()) return;
  log::warning("view.published_again",
               {{"why", "the cluster has lost the end of what it had acknowledged"}, {"queued", queued_}});
  done_.notify_with([&](uint64_t& done) { done = lost; });
}

bool Republish::wait(Deadline deadline) {
  const auto is_done = [this](uint64_t done) { return done == catalog_.lost_tails(); };
  return done_.wait_until(deadline.at(), is_done, is_done);
}

void Republish::look_below(const std::string& path, const std::stop_token& stop) {
  for (const auto& item : disk_.list(LocalTree::view(path)).value_or(std::vector<LocalTree::Item>{})) {
    if (stop.stop_requested()) return;
    look_at(path, item, stop);
  }
}

void Republish::look_at(const std::string& directory, const LocalTree::Item& item, const std::stop_token& stop) {
  const std::string path = directory.empty() ? item.name : join(directory, item.name);
  const auto& rule = layout::rule_of(layout::classify(path).family);
  if (rule.shared && (rule.form == layout::Form::kDirectory || rule.form == layout::Form::kIndex)) {
    const auto mark = parcel_mark_of(disk_, LocalTree::view(path));
    if (mark && !mark->fetched && is_lost(path)) queue(path, stop);
    return;
  }
  if (item.type == S_IFDIR) return look_below(path, stop);
  if (item.type != S_IFREG || !rule.shared || seal_on_disk(disk_, path).empty() || !is_lost(path)) return;
  // A set is published as a whole, with its group file.
  if (!is_kernel_file(path)) return queue(path, stop);
  if (layout::is_group_file(item.name) && local_set_is_whole(disk_, directory).value_or(true)) queue(directory, stop);
}

bool Republish::is_lost(const std::string& path) const {
  if (!sealing_.is_unpublished(path)) return false;
  const auto state = catalog_.publish_state(layout::name_of(path).path);
  // What never was in the cluster has not been lost.
  if (state && state->state != catalog::PublishState::kPublished) return false;
  const Provenance found = marks_.read(LocalTree::view(path));
  return found.is_known() && !found.is_private();
}

void Republish::queue(const std::string& path, const std::stop_token& stop) {
  while (seal_queue_.waiting() >= kWaitingMost && !stop.stop_requested()) rest(kStep, stop);
  sealing_.publish_again(path);
  ++queued_;
}

}  // namespace inductorfs::vfs
