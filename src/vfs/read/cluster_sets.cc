// SPDX-License-Identifier: Apache-2.0
#include "vfs/read/cluster_sets.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "vfs/tree/view_files.h"

namespace inductorfs::vfs {
namespace {

/// Takes the files of no set that have the names of this one out of its way, as a set of this host does (KeySets): a
/// reader would mix the two. Who has one open reads on.
Result<void> take_place_of_left(RootTree& tree, const NodePtr& directory, const std::string& path,
                                const std::map<std::string, catalog::KnownEntry>& set, std::vector<NodePtr>& gone) {
  for (const auto& item : set) {
    const std::string& name = item.first;
    const std::string place = LocalTree::view(join(path, name));
    if (!mark_of(tree.disk(), place, kLeftMark)) continue;
    const NodePtr node = tree.nodes().child(directory, name);
    if (node && tree.nodes().links_of(node) <= 1) {
      const std::string orphan = LocalTree::orphan(node->id);
      INDUCTORFS_TRY(node->content.with([&](Content& content) -> Result<void> {
        if (auto moved = tree.disk().rename(place, orphan); !moved) return moved;
        (void)tree.nodes().detach(directory, name, node);
        tree.become_orphan(*node, content, orphan);
        content.attributes_valid = false;
        return {};
      }));
      gone.push_back(node);
    }
    INDUCTORFS_TRY(tree.disk().unlink(place));
  }
  return {};
}

}  // namespace

std::optional<catalog::KnownEntry> ClusterSets::entry_of(const Node& directory, const std::string& path) const {
  if (directory.key && is_kernel_file(path)) {
    std::optional<catalog::KnownEntry> shown;
    const bool taken = directory.key->state.with([&](const KeyState& state) {
      if (const auto found = state.cluster.find(last_component(path)); found != state.cluster.end())
        shown = found->second;
      return state.committed != KeyState::Committed::kNone;
    });
    if (taken) return shown;
  }
  return catalog_.find(layout::name_of(path));
}

std::vector<catalog::KnownEntry> ClusterSets::set_at(const Node& directory) {
  std::vector<catalog::KnownEntry> set;
  if (!directory.key) return set;
  directory.key->state.with([&](const KeyState& state) {
    for (const auto& [name, known] : state.cluster) set.push_back(known);
  });
  return set;
}

std::optional<bool> ClusterSets::is_whole(const std::vector<catalog::KnownEntry>& set) const {
  if (set.empty()) return false;
  const std::string directory = parent_path(set.front().entry.path);
  bool has_group = false;
  for (const auto& known : set) {
    if (known.entry.origin != set.front().entry.origin) return false;
    if (!layout::is_group_file(last_component(known.entry.path))) continue;
    const auto blob = store_.open_blob(known.entry.digest);
    if (!blob) return std::nullopt;
    const auto text = blob->read_all(kGroupFileLimit);
    if (!text) return std::nullopt;
    // The canonical form names children below a placeholder; rendered for any directory it is a plain group file.
    const auto rendered = layout::render_group(*text, "/" + directory);
    if (!rendered) return false;
    const auto children = layout::group_children(*rendered, last_component(directory));
    if (!children) return false;
    has_group = true;
    for (const auto& child : *children) {
      const std::string path = join(directory, child);
      if (std::none_of(set.begin(), set.end(), [&](const auto& k) { return k.entry.path == path; })) return false;
    }
  }
  return has_group;
}

std::vector<catalog::KnownEntry> ClusterSets::offered(const Node& directory, const layout::Name& name) const {
  std::vector<catalog::KnownEntry> files;
  const bool is_free = directory.key && directory.key->state.with([](const KeyState& state) {
    return state.committed == KeyState::Committed::kNone;
  });
  if (!is_free) return files;
  Set set;
  for (auto& known : catalog_.entries_in(name)) {
    if (!is_kernel_file(known.entry.path)) continue;
    set.emplace(last_component(known.entry.path), known);
    files.push_back(std::move(known));
  }
  return files;
}

void ClusterSets::put_aside(const Node& directory, const std::vector<catalog::KnownEntry>& files) {
  if (is_whole(files).value_or(true)) return;
  for (const auto& known : files) {
    catalog_.set_unfit(known.entry.path, known.entry.digest, "the cluster has a part of its Triton set only");
  }
  notifier_.wish_content_forgotten(directory.id);
}

bool ClusterSets::fits(const Node& directory, const Set& set) const {
  if (catalog_.frozen()) return false;
  const auto path = nodes_.path_of(directory);
  return !path ||
         std::all_of(set.begin(), set.end(), [&](const auto& item) { return scopes_.follows(*path, item.second); });
}

void ClusterSets::note(const Node& directory, const KeyState& state) {
  nodes_.note_key(directory, NodeJournal::cluster_set(directory.id, state.cluster));
}

void ClusterSets::pin(const Node& directory, const catalog::KnownEntry& known) {
  pins_.with([&](Pins& pins) { pins.shared[known.entry.digest].push_back(directory.id); });
}

void ClusterSets::unpin(const Node& directory, const catalog::KnownEntry& known) {
  pins_.with([&](Pins& pins) { pins.unshare(known.entry.digest, directory.id); });
}

bool ClusterSets::take(const NodePtr& directory, const std::vector<catalog::KnownEntry>& set) {
  if (!is_whole(set).value_or(false)) return false;
  Set names;
  for (const auto& known : set) names.emplace(last_component(known.entry.path), known);
  bool first = false;
  std::vector<NodePtr> gone;
  const auto show = [&](KeyState& state) {
    if (state.committed != KeyState::Committed::kNone) return true;
    // Under the lock: drop_foreign(), or who leaves files (KeySets), comes before, and then this sees it, or after.
    if (!fits(*directory, names)) return false;
    const auto path = nodes_.path_of(*directory);
    if (path && !take_place_of_left(tree_, directory, *path, names, gone)) return false;
    first = true;
    state.committed = KeyState::Committed::kCluster;
    state.cluster = names;
    for (const auto& [name, known] : names) pin(*directory, known);
    note(*directory, state);
    return true;
  };
  const bool shown = moves_.read([&](const Moves&) { return directory->key->state.with(show); });
  for (const NodePtr& node : gone) tree_.let_go(nodes_.release(node));
  if (!first) return shown;
  for (const auto& [name, child] : nodes_.children(directory)) {
    const auto now = names.find(name);
    // Of a set that went while this name was looked up.
    const bool other = child->content.with([&, &label = name](const Content& content) {
      return content.backing == Backing::kShared && is_kernel_file(content.entry.path) &&
             (now == names.end() || content.entry.digest != now->second.entry.digest);
    });
    if (!other) continue;
    (void)nodes_.detach(directory, name, child);
    tree_.let_go(nodes_.release(child));
    notifier_.wish_forgotten(directory->id, name);
  }
  return true;
}

void ClusterSets::restore(const Node& directory, Set set) {
  directory.key->state.with([&](KeyState& state) {
    if (state.committed == KeyState::Committed::kLocal || !fits(directory, set)) return note(directory, state);
    state.committed = KeyState::Committed::kCluster;
    state.cluster = std::move(set);
    for (const auto& [name, known] : state.cluster) pin(directory, known);
  });
}

bool ClusterSets::stays(const NodePtr& directory, const std::string& path) {
  if (!directory->key || !is_kernel_file(path)) return false;
  bool fitting = false;
  bool same = false;
  const auto now = catalog_.find(layout::name_of(path));
  const bool taken = directory->key->state.with([&](const KeyState& state) {
    if (state.committed != KeyState::Committed::kCluster) return false;
    fitting = fits(*directory, state.cluster);
    const auto shown = state.cluster.find(last_component(path));
    same = shown == state.cluster.end() ? !now : now && now->entry.digest == shown->second.entry.digest;
    return true;
  });
  if (taken && !fitting) drop(directory, &Notifier::forget_name);
  if (taken && fitting && !same) counters_.get("triton.changes_not_shown").add();
  return taken;
}

void ClusterSets::take_node_away(const NodePtr& directory, const std::string& name, const catalog::KnownEntry& known) {
  const NodePtr child = nodes_.child(directory, name);
  const bool shows = child && child->content.with([&](const Content& content) {
    return content.backing == Backing::kShared && content.entry.digest == known.entry.digest;
  });
  if (!shows) return;
  (void)nodes_.detach(directory, name, child);
  tree_.let_go(nodes_.release(child));
}

/// A file of this host may have been in front of one of the set's, so that no lookup has taken the set.
void ClusterSets::take_listed(const std::string& deleted) {
  if (!is_kernel_file(deleted)) return;
  const NodePtr directory = nodes_.find(parent_path(deleted));
  if (!directory || !directory->key) return;
  const auto listed = offered(*directory, layout::name_of(parent_path(deleted)));
  // Without its group file here it cannot be shown: then the other names go at once.
  if (!listed.empty()) (void)take(directory, listed);
}

void ClusterSets::hide(const std::string& deleted, const std::vector<std::string>& paths) {
  if (!is_kernel_file(deleted)) return;
  for (const auto& path : paths) {
    const NodePtr directory = nodes_.find(parent_path(path));
    if (!directory || !directory->key) continue;
    if (path == deleted) {
      hide_name(directory, last_component(path));
    } else {
      // It may have listed a set without showing it. A program that removes the one directory after the other is to
      // find no name in the second listing that the kernel is told to forget meanwhile (shutil.rmtree).
      note_change(directory);
      notifier_.forget_listing_now(directory->id);
      drop(directory, &Notifier::wish_forgotten);
    }
  }
}

void ClusterSets::hide_name(const NodePtr& directory, const std::string& name) {
  std::optional<catalog::KnownEntry> hidden;
  directory->key->state.with([&](KeyState& state) {
    const auto found = state.cluster.find(name);
    if (found == state.cluster.end()) return;
    hidden = found->second;
    state.cluster.erase(found);
    if (state.cluster.empty()) state.committed = KeyState::Committed::kNone;
    note(*directory, state);
  });
  if (!hidden) return;
  unpin(*directory, *hidden);
  take_node_away(directory, name, *hidden);
  note_change(directory);
  notifier_.wish_forgotten(directory->id, name);
}

void ClusterSets::drop(const NodePtr& directory, Tell tell) {
  Set set;
  directory->key->state.with([&](KeyState& state) {
    if (state.committed != KeyState::Committed::kCluster) return;
    set.swap(state.cluster);
    state.committed = KeyState::Committed::kNone;
    note(*directory, state);
  });
  for (const auto& [name, known] : set) {
    unpin(*directory, known);
    take_node_away(directory, name, known);
    (notifier_.*tell)(directory->id, name);
  }
  const auto path = nodes_.path_of(*directory);
  if (set.empty() || !path) return;
  note_change(directory);
  // Absences that the kernel kept while this set stood: the cluster's may have these names.
  for (const auto& known : catalog_.entries_in(layout::name_of(*path)))
    (notifier_.*tell)(directory->id, last_component(known.entry.path));
  notifier_.wish_content_forgotten(directory->id);
}

void ClusterSets::drop_foreign() {
  known_roots_.each_key_directory([&](const NodePtr& directory) {
    if (!directory->key->state.with([&](const KeyState& state) { return fits(*directory, state.cluster); }))
      drop(directory, &Notifier::forget_name);
  });
}

void ClusterSets::drop_selected(const layout::Selection& selection) {
  known_roots_.each_key_directory([&](const NodePtr& directory) {
    const bool selected = directory->key->state.with([&](const KeyState& state) {
      return std::any_of(state.cluster.begin(), state.cluster.end(),
                         [&](const auto& one) { return selection.selects(one.second.scope, one.second.entry); });
    });
    if (selected) drop(directory, &Notifier::forget_name);
  });
}

bool ClusterSets::evict(const NodePtr& directory) {
  bool used = false;
  for (const auto& [name, child] : nodes_.children(directory)) {
    notifier_.wish_forgotten(directory->id, name);
    used = true;
  }
  if (!used) drop(directory);
  return !used;
}

bool ClusterSets::shown_at(const NodePtr& directory) const {
  if (directory->key) return directory->key->state.with([](const KeyState& state) { return !state.cluster.empty(); });
  const auto children = nodes_.children(directory);
  return std::any_of(children.begin(), children.end(),
                     [&](const auto& child) { return child.second->is_directory() && shown_at(child.second); });
}

}  // namespace inductorfs::vfs
