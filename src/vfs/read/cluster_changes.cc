// SPDX-License-Identifier: Apache-2.0
#include "vfs/read/cluster_changes.h"

#include <set>

#include "vfs/tree/paths.h"

/// What the cluster changed: names appear, change and go behind the kernel's back.
namespace inductorfs::vfs {
void ClusterChanges::on_catalog_change(const std::vector<std::string>& canonical_paths) {
  std::set<NodeId> directories;
  std::vector<Notifier::Notice> notices;
  for (const auto& canonical : canonical_paths) {
    for (const auto& path : tree_.local_paths_of(canonical)) directories.insert(change(path, notices));
  }
  // Listings that the kernel keeps; a name that it did not know makes no notice of its own drop them.
  for (const NodeId directory : directories) notices.push_back({directory, {}});
  notifier_.forget_all(notices);
}

void ClusterChanges::apply(const std::string& path) {
  std::vector<Notifier::Notice> notices;
  change(path, notices);
  notifier_.forget_all(notices);
}

NodeId ClusterChanges::change(const std::string& path, std::vector<Notifier::Notice>& notices) {
  const auto walked = nodes_.walk(path);
  const NodePtr directory = walked.missing.empty() ? walked.parent : walked.node;
  if (directory && sets_.stays(directory, path)) return directory->id;
  if (!walked.missing.empty()) {
    // The kernel may hold the absence of this name; what lies below it, it has never asked for.
    notices.push_back({walked.node->id, walked.missing});
    return walked.node->id;
  }
  if (form_of(path) != layout::Form::kFile) {
    // What was unpacked of another parcel goes at the next lookup.
    notices.push_back({walked.parent->id, walked.name});
    return walked.parent->id;
  }
  const auto known = catalog_.find(layout::name_of(path));
  const bool stale = walked.node->content.with([&](const Content& content) {
    return content.backing == Backing::kShared && (!known || known->entry.digest != content.entry.digest);
  });
  if (stale) {
    // Who has it open keeps the old bytes; the name is looked up anew.
    (void)nodes_.detach(walked.parent, walked.name);
    tree_.let_go(nodes_.release(walked.node));
    notices.push_back({walked.parent->id, walked.name});
  }
  return walked.parent->id;
}

}  // namespace inductorfs::vfs
