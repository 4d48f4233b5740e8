// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "inductorfs/base/fail_point.h"
#include "vfs/write/sealing.h"

/// What the cluster answered to what was published.

namespace inductorfs::vfs {

void Sealing::on_published(const catalog::PublishReport& report) {
  if (report.state == catalog::PublishState::kRefused) {
    for (const auto& path : report.paths) refuse(path, report.why);
  }
  if (report.merged) adopt_merged(*report.merged);
}

void Sealing::adopt_merged(const codec::Entry& merged) {
  for (const auto& path : tree_.local_paths_of(merged.path)) adopt_merged(path);
}

void Sealing::adopt_merged(const std::string& path) {
  // Only a file whose own timings have left the queue may go: what is written since and not queued yet has no seal on
  // the disk, and the next writer starts from what it reads here and replaces in the queue what waits there. No name
  // changes meanwhile, or the file that is taken away would be another than the one that was looked at.
  const auto may_go = [&](const Queueing&) {
    const auto state = catalog_.publish_state(layout::canonical_path(path));
    return !(state && state->state == catalog::PublishState::kQueued) && !tree_.seal_on_disk(path).empty();
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
