// SPDX-License-Identifier: Apache-2.0
// What changes of one entry change beside it: the other files of its set, what the directories above it have, and their
// times. The third part of EntryTree.
#include <algorithm>
#include <chrono>

#include "catalog/tree/entry_tree.h"

namespace inductorfs::catalog {
namespace {

/// Programs keep times as floating-point seconds, which tell no two nanoseconds apart.
constexpr int64_t kTimeStep = 1'000;

int64_t now() { return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace

void EntryTree::Directory::tally(const Leaf& leaf, bool comes) {
  const auto change = [&](ScopeCounts& counts) { (void)(comes ? counts.add(leaf.scope) : counts.remove(leaf.scope)); };
  if (!leaf.of_set) return;
  if (leaf.lost || leaf.unfit) change(broken);
  if (!leaf.hidden) change(open);
}

void EntryTree::note_time(Directory& directory) {
  int64_t& time = directory.names_changed;
  if (!notes_times_) {
    time = std::max(time, std::min(loaded_time_, now()));
  } else {
    const int64_t at = now();
    time = at == time ? time + kTimeStep : at;
  }
}

/// Of a name that one root hides or shows again: which directories above it lose or get a name there is not counted.
void EntryTree::note_times_above(std::string_view path) {
  const Trail trail = trail_of(path);
  for (size_t depth = 0; notes_times_ && depth < trail.names.size() && depth < trail.nodes.size(); ++depth) {
    if (!trail.nodes[depth]->is_file()) note_time(*trail.nodes[depth]->directory);
  }
}

void EntryTree::all_names_changed() {
  if (notes_times_) all_names_changed_ = now();
}

std::optional<int64_t> EntryTree::names_changed(const layout::Name& directory) const {
  const PathNode* const node = node_of(directory.path);
  if (node == nullptr || node->is_file()) return std::nullopt;
  return std::max(node->directory->names_changed, all_names_changed_);
}

void EntryTree::count(const Trail& trail, ScopeIndex scope, bool before, bool after) {
  if (before == after) return;
  bool name_changes = true;  // in the next directory above
  for (size_t depth = trail.names.size(); depth > 0; --depth) {
    Directory& directory = *trail.nodes[depth - 1]->directory;
    if (name_changes) note_time(directory);
    name_changes = after ? directory.visible.add(scope) : directory.visible.remove(scope);
  }
}

/// Changes the leaf of a scope, or takes it in or out. With one file of a set all others may come or go.
void EntryTree::change_leaf(const Trail& trail, ScopeIndex scope,
                            const std::function<void(std::vector<Leaf>&)>& change) {
  auto& leaves = trail.last().leaves;
  Directory& directory = *trail.nodes[trail.names.size() - 1]->directory;
  const auto leaf_in = [scope](std::vector<Leaf>& of) {
    const auto found = std::ranges::find(of, scope, &Leaf::scope);
    return found == of.end() ? nullptr : &*found;
  };
  const bool was_withheld = directory.withholds(scope);
  Leaf* leaf = leaf_in(leaves);
  const bool was = leaf != nullptr && leaf->visible();
  if (leaf != nullptr) directory.tally(*leaf, false);
  change(leaves);
  leaf = leaf_in(leaves);
  if (leaf != nullptr) directory.tally(*leaf, true);
  const bool is_withheld = directory.withholds(scope);
  if (leaf != nullptr) leaf->withheld = is_withheld;
  count(trail, scope, was, leaf != nullptr && leaf->visible());
  if (was_withheld == is_withheld) return;
  for (auto& [name, file] : directory.children) {
    Leaf* const other = leaf_in(file.leaves);
    if (other == nullptr || !other->of_set || other->withheld == is_withheld) continue;
    other->withheld = is_withheld;
    count(trail, scope, is_withheld, !is_withheld);
  }
}

EntryTree::Files EntryTree::files_of(const layout::Name& name) const {
  Files files;
  const auto* const shown = scopes_.shown_in(name.root);
  const auto add = [&](const std::string& path, const PathNode& file) {
    for (const Leaf& leaf : file.leaves) {
      if (!leaf.lost && scopes_.is_in(shown, leaf.scope)) files.emplace_back(path, leaf.digest);
    }
  };
  const auto classified = layout::classify(name.path);
  const bool of_set = classified.family == layout::Family::kTritonKernel;
  const PathNode* const node = node_of(of_set ? classified.key_directory : name.path);
  if (node != nullptr && of_set) {
    // Whatever set stands there: it must not come up when the last file of another one has gone.
    for (const auto& [file, one] : node->children()) {
      if (!one.leaves.empty() && one.leaves.front().of_set)
        add(classified.key_directory + "/" + std::string(std::string_view(file)), one);
    }
  } else if (node != nullptr) {
    add(name.path, *node);
  }
  if (const auto awaited = awaited_.find(name.path); awaited != awaited_.end()) {
    for (const auto& digest : awaited->second) files.emplace_back(name.path, digest);
  }
  return files;
}

}  // namespace inductorfs::catalog
