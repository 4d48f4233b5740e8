// SPDX-License-Identifier: Apache-2.0
#include "vfs/read/cluster_changes.h"

#include "vfs/tree/paths.h"

/// What the cluster changed: names appear, change and go behind the kernel's back.
namespace inductorfs::vfs {

void ClusterChanges::on_catalog_change(const std::vector<std::string>& canonical_paths) {
  notifier_.forget_all(
      notices_of(canonical_paths, [this](const auto& path) { return known_roots_.local_paths_of(path); }));
}

void ClusterChanges::on_shown(const std::string& root, const std::vector<std::string>& canonical_paths) {
  const NodePtr known = nodes_.find(root);
  const bool knows_none = !known || nodes_.children(known).empty();
  if (!root.empty() && knows_none) return;  // of a name that stands in a root itself it keeps no absence
  notifier_.forget_at_once(notices_of(canonical_paths, [&](const auto& path) {
    return known_roots_.local_paths_of({path, root});
  }));
}

std::vector<Notifier::Notice> ClusterChanges::notices_of(
    const std::vector<std::string>& canonical_paths,
    const std::function<std::vector<std::string>(const std::string&)>& local_paths_of) {
  Touched touched;
  std::vector<Notifier::Notice> notices;
  for (const auto& canonical : canonical_paths) {
    for (const auto& path : local_paths_of(canonical)) {
      touched.directories.insert(change(path, notices));
      forget_emptied(parent_path(path), notices);
      tell_times(path, touched);
    }
  }
  // Listings that the kernel keeps; a name that it did not know makes no notice of its own drop them.
  for (const NodeId directory : touched.directories) notices.push_back({directory, {}});
  return notices;
}

/// Whoever asks for a key that has nothing any more is to be noticed (Lookup::is_empty_key).
void ClusterChanges::forget_emptied(const std::string& directory, std::vector<Notifier::Notice>& notices) const {
  if (!layout::is_candidate_directory(directory) || catalog_.has_directory(layout::name_of(directory))) return;
  const auto walked = nodes_.walk(directory);
  if (walked.missing.empty() && walked.parent) notices.push_back({walked.parent->id, walked.name});
}

/// Adds the directories above a name that got or lost one since the kernel was told their times: with the last file of
/// a directory that goes too.
void ClusterChanges::tell_times(const std::string& path, Touched& touched) const {
  for (std::string above = parent_path(path); touched.paths.insert(above).second; above = parent_path(above)) {
    const NodePtr node = nodes_.find(above);
    const auto time = node ? catalog_.names_changed(layout::name_of(above)) : std::nullopt;
    if (time && node->told_change.exchange(*time) != *time) touched.directories.insert(node->id);
  }
}

void ClusterChanges::apply(const std::string& path) {
  std::vector<Notifier::Notice> notices;
  change(path, notices);
  notifier_.forget_all(notices);
}

void ClusterChanges::drop_shown(const codec::Digest& digest) {
  const auto shown_by = pins_.with([&](Pins& pins) {
    pins.sealed_paths.erase(digest);
    const auto shared = pins.shared.find(digest);
    return shared == pins.shared.end() ? std::vector<NodeId>() : shared->second;
  });
  for (const NodeId id : shown_by) {
    const NodePtr node = nodes_.find(id);
    if (node && node->key) sets_.drop(node);
    const auto path = node && !node->key ? nodes_.path_of(*node) : std::nullopt;
    if (!path) continue;
    const auto walked = nodes_.walk(*path);
    if (!walked.missing.empty() || walked.node != node) continue;
    (void)nodes_.detach(walked.parent, walked.name, node);
    tree_.let_go(nodes_.release(node));
    notifier_.forget_name(walked.parent->id, walked.name);
  }
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
    (void)nodes_.detach(walked.parent, walked.name, walked.node);
    tree_.let_go(nodes_.release(walked.node));
    notices.push_back({walked.parent->id, walked.name});
  }
  return walked.parent->id;
}

}  // namespace inductorfs::vfs
