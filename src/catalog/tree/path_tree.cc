// SPDX-License-Identifier: Apache-2.0
#include "catalog/tree/path_tree.h"

#include <algorithm>
#include <chrono>
#include <iterator>

#include "inductorfs/layout/layout.h"
#include "inductorfs/layout/start_list.h"

namespace inductorfs::catalog {
namespace {

/// Origins are shared between entries. A cluster with more writers than this (or a hostile one) only loses the
/// sharing: the table starts afresh and the strings live as long as their entries.
constexpr size_t kOriginTableLimit = 65'536;
/// Programs keep times as floating-point seconds, which tell no two nanoseconds apart.
constexpr int64_t kTimeStep = 1'000;

int64_t now() { return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count(); }

/// Takes the first component from a relative path, which has one.
std::string_view take_name(std::string_view& path) {
  const size_t slash = path.find('/');
  const std::string_view name = path.substr(0, slash);
  path = slash == std::string_view::npos ? std::string_view{} : path.substr(slash + 1);
  return name;
}

}  // namespace

codec::Entry PathTree::Leaf::entry(const std::string& path) const {
  return {path, digest, size, mode, mtime_ns, *origin};
}

const PathTree::Leaf* PathTree::PathNode::leaf_of(ScopeIndex scope) const {
  const auto found = std::ranges::find(leaves, scope, &Leaf::scope);
  return found == leaves.end() ? nullptr : &*found;
}

const PathTree::Children& PathTree::PathNode::children() const {
  static const Children none;
  return is_file() ? none : directory->children;
}

void PathTree::Directory::tally(const Leaf& leaf, bool comes) {
  const auto change = [&](ScopeCounts& counts) { (void)(comes ? counts.add(leaf.scope) : counts.remove(leaf.scope)); };
  if (!leaf.of_set) return;
  if (leaf.lost || leaf.unfit) change(broken);
  if (!leaf.hidden) change(open);
}

PathTree::Trail PathTree::trail_of(std::string_view path) {
  Trail trail;
  trail.nodes.push_back(&root_);
  while (!path.empty()) {
    const std::string_view name = take_name(path);
    if (trail.whole() && !trail.last().is_file()) {
      auto& children = trail.last().directory->children;
      if (auto found = children.find(name); found != children.end()) trail.nodes.push_back(&found->second);
    }
    trail.names.push_back(name);
  }
  return trail;
}

const PathTree::PathNode* PathTree::find(std::string_view path) const {
  const PathNode* node = &root_;
  while (node != nullptr && !path.empty()) {
    const Children& children = node->children();
    const auto found = children.find(take_name(path));
    node = found == children.end() ? nullptr : &found->second;
  }
  return node;
}

PathTree::Leaf PathTree::make_leaf(ScopeIndex scope, const codec::Entry& entry) {
  auto origin = origins_.find(entry.origin);
  if (origin == origins_.end()) {
    if (origins_.size() >= kOriginTableLimit) origins_.clear();
    origin = origins_.emplace(entry.origin, std::make_shared<const std::string>(entry.origin)).first;
  }
  Leaf leaf{entry.digest, entry.size, entry.mtime_ns, origin->second, scope};
  leaf.mode = static_cast<uint16_t>(entry.mode);
  leaf.unnamed = layout::is_start_list(entry.path);
  leaf.of_set = layout::classify(entry.path).family == layout::Family::kTritonKernel;
  return leaf;
}

void PathTree::set(Trail& trail, Leaf leaf) {
  while (!trail.whole()) {
    const std::string_view name = trail.names[trail.nodes.size() - 1];
    PathNode& parent = trail.last();
    if (parent.directory == nullptr) parent.directory = std::make_unique<Directory>();  // made in the last turn
    trail.nodes.push_back(&parent.directory->children.try_emplace(CompactName(name)).first->second);
  }
  loaded_time_ = leaf.mtime_ns;
  const ScopeIndex scope = leaf.scope;
  put(trail, scope, std::move(leaf));
}

void PathTree::remove(const Trail& trail, ScopeIndex scope) {
  put(trail, scope, std::nullopt);
  for (size_t depth = trail.names.size(); depth > 0; --depth) {
    if (!trail.nodes[depth]->leaves.empty() || !trail.nodes[depth]->children().empty()) break;
    auto& siblings = trail.nodes[depth - 1]->directory->children;
    siblings.erase(siblings.find(trail.names[depth - 1]));
  }
}

void PathTree::set_flags(std::string_view path, const codec::Digest& digest, const std::function<void(Leaf&)>& change) {
  const Trail trail = trail_of(path);
  if (!trail.whole()) return;
  std::vector<Leaf> changed;
  std::ranges::copy_if(trail.last().leaves, std::back_inserter(changed),
                       [&](const Leaf& leaf) { return leaf.digest == digest; });
  for (Leaf& leaf : changed) {
    change(leaf);
    put(trail, leaf.scope, leaf);
  }
}

/// Puts a leaf in the place of the scope's last one, or none. With one file of a set all others may come or go.
void PathTree::put(const Trail& trail, ScopeIndex scope, std::optional<Leaf> next) {
  auto& leaves = trail.last().leaves;
  Directory& directory = trail.parent();
  const bool was_withheld = directory.withholds(scope);
  const auto last = std::ranges::find(leaves, scope, &Leaf::scope);
  const bool was = last != leaves.end() && last->visible();
  if (last != leaves.end()) {
    directory.tally(*last, false);
    known_.remove(scope);
    leaves.erase(last);
  }
  if (next) {
    directory.tally(*next, true);
    known_.add(scope);
  }
  const bool is_withheld = directory.withholds(scope);
  if (next) next->withheld = is_withheld;
  count(trail, scope, was, next && next->visible());
  if (next) leaves.push_back(*std::move(next));
  if (was_withheld == is_withheld) return;
  for (auto& [name, file] : directory.children) {
    const auto other = std::ranges::find(file.leaves, scope, &Leaf::scope);
    if (other == file.leaves.end() || !other->of_set || other->withheld == is_withheld) continue;
    other->withheld = is_withheld;
    count(trail, scope, is_withheld, !is_withheld);
  }
}

void PathTree::count(const Trail& trail, ScopeIndex scope, bool before, bool after) {
  if (before == after) return;
  bool name_changes = true;  // in the next directory above
  for (size_t depth = trail.names.size(); depth > 0; --depth) {
    Directory& directory = *trail.nodes[depth - 1]->directory;
    if (name_changes) note_time(directory);
    name_changes = after ? directory.visible.add(scope) : directory.visible.remove(scope);
  }
}

/// Visits the files here and below, those behind `after`, a path relative to this node; all for the empty one. `path`
/// is the node's own. Returns false when the visitor wants no more.
bool PathTree::visit(const PathNode& node, std::string& path, std::string_view after, const Visitor& visitor) {
  if (node.is_file()) return visitor(path, node);
  const size_t slash = after.find('/');
  const std::string_view first = after.substr(0, slash);
  const std::string_view rest = slash == std::string_view::npos ? std::string_view{} : after.substr(slash + 1);
  const size_t length = path.size();
  bool go_on = true;
  for (auto child = node.children().lower_bound(first); go_on && child != node.children().end(); ++child) {
    const auto& [name, below] = *child;
    const bool begins_here = !first.empty() && name == first;
    if (begins_here && below.is_file()) continue;
    if (!path.empty()) path += '/';
    path += name;
    go_on = visit(below, path, begins_here ? rest : std::string_view{}, visitor);
    path.resize(length);
  }
  return go_on;
}

void PathTree::visit_below(std::string_view directory, const Visitor& visitor) const {
  std::string path(directory);
  if (const PathNode* const node = find(directory)) visit(*node, path, {}, visitor);
}

std::vector<std::string> PathTree::of_scope(ScopeIndex scope) const {
  std::vector<std::string> paths;
  if (!known_.has(scope)) return paths;
  visit_below({}, [&](const std::string& at, const PathNode& node) {
    if (node.leaf_of(scope) != nullptr) paths.push_back(at);
    return true;
  });
  return paths;
}

PathTree::Page PathTree::page_of(ScopeIndex scope, std::string_view after, size_t limit) const {
  Page page;
  if (limit == 0 || !known_.has(scope)) return page;
  std::string path;
  size_t seen = 0;
  visit(root_, path, after, [&](const std::string& at, const PathNode& node) {
    if (const Leaf* const leaf = node.leaf_of(scope)) page.entries.push_back(leaf->entry(at));
    if (page.entries.size() < limit && ++seen < kPageMost) return true;
    page.next = at;
    return false;
  });
  return page;
}

std::optional<int64_t> PathTree::names_changed(std::string_view directory) const {
  const PathNode* const node = find(directory);
  if (node == nullptr || node->is_file()) return std::nullopt;
  return std::max(node->directory->names_changed, all_names_changed_);
}

void PathTree::all_names_changed() {
  if (notes_times_) all_names_changed_ = now();
}

void PathTree::names_changed_above(std::string_view path) {
  const Trail trail = trail_of(path);
  for (size_t depth = 0; notes_times_ && depth < trail.names.size() && depth < trail.nodes.size(); ++depth) {
    if (!trail.nodes[depth]->is_file()) note_time(*trail.nodes[depth]->directory);
  }
}

void PathTree::note_time(Directory& directory) {
  int64_t& time = directory.names_changed;
  if (!notes_times_) {
    time = std::max(time, std::min(loaded_time_, now()));
  } else {
    const int64_t at = now();
    time = at == time ? time + kTimeStep : at;
  }
}

}  // namespace inductorfs::catalog
