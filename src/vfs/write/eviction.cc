// SPDX-License-Identifier: Apache-2.0
#include "vfs/write/eviction.h"

#include <utility>
#include <vector>

#include "inductorfs/base/fail_point.h"
#include "inductorfs/layout/layout.h"
#include "vfs/tree/view_files.h"

namespace inductorfs::vfs {

bool Eviction::allows(const codec::Digest& digest) {
  if (phase_.with([](Resuming resuming) { return resuming != Resuming::kNo; })) return false;
  const auto [shown_by, path] = pins_.with([&](const Pins& pins) {
    const auto local = pins.sealed_paths.find(digest);
    const auto shared = pins.shared.find(digest);
    return std::make_pair(shared == pins.shared.end() ? std::vector<NodeId>() : shared->second,
                          local == pins.sealed_paths.end() ? std::string() : local->second);
  });
  bool shown = false;
  bool set_stays = false;
  for (const NodeId id : shown_by) {
    // When the kernel lets the name go, and nobody has the file open, a later round may evict it.
    const NodePtr node = nodes_.find(id);
    if (node && node->key) {
      set_stays = !sets_.evict(node) || set_stays;
      continue;
    }
    shown = true;
    const auto shown_path = node ? nodes_.path_of(*node) : std::nullopt;
    if (!shown_path) continue;
    const auto walked = nodes_.walk(*shown_path);
    if (walked.missing.empty() && walked.parent) notifier_.wish_forgotten(walked.parent->id, walked.name);
  }
  if (shown || set_stays) return false;
  if (path.empty()) return true;
  return drop_local(path, digest);
}

bool Eviction::drop_local(const std::string& path, const codec::Digest& digest) {
  const auto classified = layout::classify(path);
  const auto state = catalog_.publish_state(classified.canonical);
  if (state && state->state == catalog::PublishState::kQueued) return false;
  if (form_of(path) != layout::Form::kFile) {
    if (!parcels_.drop(path)) return false;
    pins_.with([&](Pins& pins) { pins.sealed_paths.erase(digest); });
    return true;
  }
  if (is_known(path)) return false;  // the usual answer, for which nobody has to wait
  // Nobody may be on the way to the name while it goes.
  const bool gone = moves_.write([&](Moves&) {
    return classified.family == layout::Family::kTritonKernel ? drop_local_set(parent_path(path))
                                                              : drop_local_file(path, digest);
  });
  if (!gone) return false;
  fail_point("evict.dropped");
  (void)disk_.unlink(LocalTree::stale(digest.to_hex()));  // as above
  pins_.with([&](Pins& pins) { pins.sealed_paths.erase(digest); });
  counters_.get("view.dropped").add();
  return true;
}

/// When the kernel lets the name go, a later round may drop the file.
bool Eviction::is_known(const std::string& path) {
  const auto walked = nodes_.walk(path);
  if (!walked.missing.empty() || !walked.node->is_regular()) return false;
  notifier_.wish_forgotten(walked.parent->id, walked.name);
  return true;
}

bool Eviction::drop_local_file(const std::string& path, const codec::Digest& digest) {
  if (is_known(path)) return false;
  // Else it was written to, or replaced, since. A file that stays keeps its bytes, and the limit is met elsewhere.
  if (seal_on_disk(disk_, path) == digest.to_hex()) (void)disk_.unlink(LocalTree::view(path));
  return true;
}

bool Eviction::drop_local_set(const std::string& directory) {
  for (const auto& name : local_set(disk_, directory)) {
    if (seal_on_disk(disk_, join(directory, name)).empty()) return true;  // somebody's own files; the blob alone goes
    const auto state = catalog_.publish_state(layout::canonical_path(join(directory, name)));
    if (state && state->state == catalog::PublishState::kQueued) return false;
    if (is_known(join(directory, name))) return false;
  }
  auto names = local_set(disk_, directory);
  put_groups_first(names);
  for (const auto& name : names) {
    (void)disk_.unlink(LocalTree::view(join(directory, name)));  // as in drop_local_file
    fail_point("evict.set_file_dropped");
  }
  if (const NodePtr node = nodes_.find(directory); node && node->key) {
    node->key->state.with([](KeyState& state) { state.committed = KeyState::Committed::kNone; });
  }
  return true;
}

}  // namespace inductorfs::vfs
