// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <utility>

#include "inductorfs/base/fail_point.h"
#include "inductorfs/base/log.h"
#include "vfs/tree/branch_paths.h"
#include "vfs/tree/view_files.h"
#include "vfs/write/sealing.h"

/// What the cluster answered to what was published.

namespace inductorfs::vfs {

void Sealing::on_published(const catalog::PublishReport& report) {
  if (report.state == catalog::PublishState::kRefused) {
    for (const auto& path : report.paths) refuse(path, report.why);
  }
  if (report.damaged) return queue_again(report);
  if (report.merged) adopt_merged(*report.merged);
  if (report.state == catalog::PublishState::kKeptLocal) adopt_winners(report.paths);
}

/// From the files that are sound as far as anybody knows: their bytes are compared with their seals.
void Sealing::queue_again(const catalog::PublishReport& report) {
  std::set<std::string> sound;  // the set of a file of Triton's
  for (const auto& canonical : report.paths) {
    for (const auto& path : places_of(canonical)) {
      if (!codec::Digest::from_hex(seal_on_disk(disk_, path))) continue;
      const bool is_of_set = layout::classify(path).family == layout::Family::kTritonKernel;
      sound.insert(is_of_set ? parent_path(path) : path);
    }
  }
  for (const auto& path : sound) publish_again(path);
  if (!sound.empty()) queued_again_.fetch_add(1);
  if (sound.empty()) counters_.get("seal.damaged").add(report.paths.size());
  log::write_limited(
      log::Level::kError, "seal.damaged",
      {{"path", shown_path(report.paths.front())}, {"why", report.why}, {"queued_again", !sound.empty()}});
}

bool Sealing::is_unpublished(const std::string& path) const {
  const auto name = layout::name_of(path);
  const auto state = catalog_.publish_state(name.path);
  return !catalog_.knows(name) && !(state && state->state == catalog::PublishState::kQueued);
}

bool Sealing::may_be_unpublished(const std::string& path) const {
  return catalog_.queue_may_be_short() && is_unpublished(path);
}

/// What a node has measured: any answer is right, and another one gives other sums.
bool Sealing::gives_way(std::string_view path) const {
  if (!options_.cluster_winners) return false;
  const auto family = layout::classify(path).family;
  return family == layout::Family::kBestConfig || family == layout::Family::kTritonAutotune ||
         family == layout::Family::kOnDiskCache;
}

void Sealing::adopt_winners(const std::vector<std::string>& canonical_paths) {
  for (const auto& canonical : canonical_paths) {
    if (!gives_way(canonical)) continue;
    for (const auto& path : places_of(canonical)) {
      const auto known = catalog_.find(layout::name_of(path));
      const std::string seal = seal_on_disk(disk_, path);
      if (known && !seal.empty() && seal != known->entry.digest.to_hex()) adopt_merged(path);
    }
  }
}

void Sealing::adopt_merged(const codec::Entry& merged) {
  for (const auto& path : places_of(merged.path)) adopt_merged(path);
}

/// Where a file of this host may stand behind the name, also where the kernel knows none of it.
std::set<std::string> Sealing::places_of(const std::string& canonical) const {
  const auto known = known_roots_.local_paths_of(canonical);
  std::set<std::string> places(known.begin(), known.end());
  const std::string any = "triton/" + std::string(layout::kAnyDevice) + "/";
  const std::string below = canonical.starts_with(any) ? "triton/0/" + canonical.substr(any.size()) : canonical;
  for (const auto& root : known_roots_.paths()) places.insert(join(root, below));
  return places;
}

void Sealing::adopt_merged(const std::string& path) {
  // Only a file whose own timings have left the queue may go: what is written since and not queued yet has no seal on
  // the disk, and the next writer starts from what it reads here and replaces in the queue what waits there. No name
  // changes meanwhile, or the file that is taken away would be another than the one that was looked at.
  const auto may_go = [&](const Queueing&) {
    const auto state = catalog_.publish_state(layout::canonical_path(path));
    return !(state && state->state == catalog::PublishState::kQueued) && !seal_on_disk(disk_, path).empty();
  };
  const auto [walked, adopted] = moves_.write([&](Moves&) {
    auto found = nodes_.walk(path);
    const auto take = [&](Content* content) {
      return removal_.queueing().with([&](const Queueing& queueing) {
        if (!may_go(queueing)) return false;
        if (content == nullptr) return disk_.unlink(LocalTree::view(path)).has_value();
        return removal_.take_name_away({found.parent, found.name, path, layout::name_of(path), {}}, found.node, content)
            .has_value();
      });
    };
    const bool taken = !found.missing.empty() ? take(nullptr) : found.node->content.with([&](Content& c) {
      return tree_.is_sealed(*found.node, c) && take(&c);
    });
    fail_point("merge.adopted");
    return std::make_pair(std::move(found), taken);
  });
  if (!adopted) return;  // its own timings stay visible; the cluster has all
  if (walked.missing.empty()) {
    tree_.let_go(nodes_.release(walked.node));
    notifier_.forget_name(walked.parent->id, walked.name);
  }
  counters_.get("view.merged").add();
}

}  // namespace inductorfs::vfs
