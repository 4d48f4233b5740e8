// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <utility>

#include "inductorfs/base/fail_point.h"
#include "vfs/overlay.h"

/// What the cluster changed: names appear, change and go behind the kernel's back.
namespace inductorfs::vfs {
namespace {}  // namespace

std::vector<std::string> Overlay::local_paths_of(const std::string& canonical) const {
  const std::string prefix = "triton/" + std::string(layout::kAnyDevice) + "/";
  if (!canonical.starts_with(prefix)) return {canonical};
  // One entry shows in every device's directory.
  std::vector<std::string> paths;
  const std::string rest = canonical.substr(prefix.size());
  const auto triton = nodes_.walk("triton");
  std::set<std::string> devices{"0"};
  if (triton.missing.empty()) {
    for (const auto& [name, node] : nodes_.children(triton.node)) {
      if (layout::is_device_name(name)) devices.insert(name);
    }
  }
  paths.reserve(devices.size());
  for (const auto& device : devices) paths.push_back(join(join("triton", device), rest));
  return paths;
}

void Overlay::on_catalog_change(const std::vector<std::string>& canonical_paths) {
  std::set<NodeId> directories;
  for (const auto& canonical : canonical_paths) {
    for (const auto& path : local_paths_of(canonical)) {
      const NodeId directory = apply_remote_change(path, canonical);
      directories.insert(directory);
    }
  }
  // Listings that the kernel keeps; a name that it did not know makes no notice of its own drop them.
  for (const NodeId directory : directories) notifier_.forget_content(directory);
}

NodeId Overlay::apply_remote_change(const std::string& path, const std::string& canonical) {
  const auto walked = nodes_.walk(path);
  const NodePtr directory = walked.missing.empty() ? walked.parent : walked.node;
  if (directory && sets_.stays(directory, canonical)) return directory->id;
  if (!walked.missing.empty()) {
    // The kernel may hold the absence of this name; what lies below it, it has never asked for.
    notifier_.forget_name(walked.node->id, walked.missing);
    return walked.node->id;
  }
  const auto known = catalog_.find(canonical);
  const bool stale = walked.node->content.with([&](const Content& content) {
    return content.backing == Backing::kShared && (!known || known->entry.digest != content.entry.digest);
  });
  if (stale) {
    // Who has it open keeps the old bytes; the name is looked up anew.
    (void)nodes_.detach(walked.parent, walked.name);
    let_go(nodes_.release(walked.node));
    notifier_.forget_name(walked.parent->id, walked.name);
  }
  return walked.parent->id;
}

void Overlay::on_published(const catalog::PublishReport& report) {
  if (report.state == catalog::PublishState::kRefused) {
    for (const auto& path : report.paths) refuse(path, report.why);
  }
  if (report.merged) adopt_merged(*report.merged);
}

void Overlay::adopt_merged(const codec::Entry& merged) {
  const std::string& path = merged.path;
  // Only a file whose own timings have left the queue may go: what is written since and not queued yet has no seal on
  // the disk, and the next writer starts from what it reads here and replaces in the queue what waits there. No name
  // changes meanwhile, or the file that is taken away would be another than the one that was looked at.
  const auto may_go = [&](const Queueing&) {
    const auto state = catalog_.publish_state(path);
    return !(state && state->state == catalog::PublishState::kQueued) && !seal_on_disk(path).empty();
  };
  const auto [walked, adopted] = moves_.write([&](Moves&) {
    auto found = nodes_.walk(path);
    const auto take = [&](Content* content) {
      return queueing_.with([&](const Queueing& queueing) {
        if (!may_go(queueing)) return false;
        if (content == nullptr) return tree_.unlink(LocalTree::view(path)).has_value();
        return take_name_away({found.parent, found.name, path, path}, found.node, content).has_value();
      });
    };
    const bool taken = !found.missing.empty() ? take(nullptr) : found.node->content.with([&](Content& c) {
      return is_sealed(*found.node, c) && take(&c);
    });
    fail_point("merge.adopted");
    return std::make_pair(std::move(found), taken);
  });
  if (!adopted) return;  // its own timings stay visible; the cluster has all
  if (walked.missing.empty()) {
    let_go(nodes_.release(walked.node));
    notifier_.forget_name(walked.parent->id, walked.name);
  }
  counters_.get("view.merged").add();
}

}  // namespace inductorfs::vfs
