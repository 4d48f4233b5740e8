// SPDX-License-Identifier: Apache-2.0
#include "catalog/tree/entry_tree.h"

#include <algorithm>
#include <iterator>
#include <queue>
#include <utility>

#include "inductorfs/base/text.h"

namespace inductorfs::catalog {
namespace {

/// Origins are shared between entries. A cluster with more writers than this (or a hostile one) only loses the
/// sharing: the table starts afresh and the strings live as long as their entries.
constexpr size_t kOriginTableLimit = 65'536;

constexpr size_t kAwaitedLimit = 4'096;

/// Calls `use` for each component of a relative path; the empty path has none.
template <typename F>
void for_each_name(std::string_view path, F&& use) {
  while (!path.empty()) {
    const size_t slash = path.find('/');
    if (!use(path.substr(0, slash))) return;
    path = slash == std::string_view::npos ? std::string_view{} : path.substr(slash + 1);
  }
}

std::string join(std::string_view directory, std::string_view name) {
  std::string path(directory);
  if (!path.empty()) path += '/';
  path += name;
  return path;
}

}  // namespace

const EntryTree::Leaf* EntryTree::PathNode::leaf_of(ScopeIndex scope) const {
  const auto found = std::ranges::find(leaves, scope, &Leaf::scope);
  return found == leaves.end() ? nullptr : &*found;
}

const EntryTree::Children& EntryTree::PathNode::children() const {
  static const Children none;
  return is_file() ? none : directory->children;
}

/// Whether a leaf of a wanted scope is visible here or below.
bool EntryTree::PathNode::shows(const std::function<bool(ScopeIndex)>& is_wanted) const {
  if (!is_file()) return directory->visible.any_of(is_wanted);
  return std::ranges::any_of(leaves, [&](const Leaf& leaf) { return leaf.visible() && is_wanted(leaf.scope); });
}

EntryTree::EntryTree(const std::vector<remote::ScopeId>& scopes, uint64_t entry_limit) : entry_limit_(entry_limit) {
  root_.directory = std::make_unique<Directory>();
  (void)follow(scopes);  // nobody follows anything yet
}

EntryTree::Trail EntryTree::trail_of(std::string_view path) {
  Trail trail;
  trail.nodes.push_back(&root_);
  for_each_name(path, [&](std::string_view name) {
    trail.names.push_back(name);
    if (trail.nodes.size() != trail.names.size()) return true;  // a parent is missing already
    if (trail.last().is_file()) return true;
    auto& children = trail.last().directory->children;
    if (auto found = children.find(name); found != children.end()) trail.nodes.push_back(&found->second);
    return true;
  });
  return trail;
}

const EntryTree::PathNode* EntryTree::node_of(std::string_view path) const {
  const PathNode* node = &root_;
  for_each_name(path, [&](std::string_view name) {
    const Children& children = node->children();
    const auto found = children.find(name);
    node = found == children.end() ? nullptr : &found->second;
    return node != nullptr;
  });
  return node;
}

/// The leaf whose scope's id sorts first among those that count.
const EntryTree::Leaf* EntryTree::first_leaf(const PathNode& node,
                                             const std::function<bool(const Leaf&)>& counts) const {
  const Leaf* first = nullptr;
  for (const Leaf& leaf : node.leaves) {
    if (counts(leaf) && (first == nullptr || scopes_.precedes(leaf.scope, first->scope))) first = &leaf;
  }
  return first;
}

codec::Entry EntryTree::entry_of(const std::string& path, const Leaf& leaf) {
  return {path, leaf.digest, leaf.size, leaf.mode, leaf.mtime_ns, *leaf.origin};
}

/// Requires: the leaf's scope is followed.
KnownEntry EntryTree::known_of(const std::string& path, const Leaf& leaf) const {
  return {entry_of(path, leaf), scopes_.id_of(leaf.scope)};
}

std::shared_ptr<const std::string> EntryTree::shared_origin(const std::string& origin) {
  if (auto found = origins_.find(origin); found != origins_.end()) return found->second;
  if (origins_.size() >= kOriginTableLimit) origins_.clear();
  return origins_.emplace(origin, std::make_shared<const std::string>(origin)).first->second;
}

bool EntryTree::hidden_by_mark(const std::string& path, const codec::Digest& digest) const {
  auto found = marks_.find(path);
  if (found == marks_.end()) return false;
  return std::ranges::find(found->second, digest) != found->second.end();
}

bool EntryTree::is_unfit(const std::string& path, const codec::Digest& digest) const {
  const auto found = unfit_.find(path);
  return found != unfit_.end() && found->second.digest == digest;
}

void EntryTree::note(std::string_view path, const codec::Digest* digest) {
  if (watched_.contains(path)) {
    auto& digests = touched_[std::string(path)];
    if (digest != nullptr) digests.push_back(*digest);
  }
  if (digest == nullptr || awaited_.empty()) return;
  const auto awaited = awaited_.find(std::string(path));
  if (awaited == awaited_.end()) return;
  auto& digests = awaited->second;
  const auto came = std::ranges::find(digests, *digest);
  if (came == digests.end()) return;
  digests.erase(digests.begin(), std::next(came));  // with those that came before it, in this order, in the cluster
  if (digests.empty()) awaited_.erase(awaited);
}

EntryTree::Change EntryTree::set(ScopeIndex scope, const codec::Entry& entry) {
  if (!scopes_.contains(scope)) return Change::kGone;
  note(entry.path, &entry.digest);
  Trail trail = trail_of(entry.path);
  const bool blocked = trail.whole() ? !trail.last().is_file() : trail.last().is_file();
  if (blocked || trail.names.empty()) return Change::kRefused;
  const bool has_it = trail.whole() && trail.last().leaf_of(scope) != nullptr;
  if (!has_it && known_.total() >= entry_limit_) return Change::kRefused;

  while (!trail.whole()) {
    const std::string_view name = trail.names[trail.nodes.size() - 1];
    PathNode& parent = trail.last();
    if (parent.directory == nullptr) parent.directory = std::make_unique<Directory>();  // made in the last turn
    trail.nodes.push_back(&parent.directory->children.try_emplace(CompactName(name)).first->second);
  }
  Leaf next{entry.digest, entry.size, entry.mtime_ns, shared_origin(entry.origin), scope};
  next.mode = static_cast<uint16_t>(entry.mode);
  next.hidden = scopes_.is_in(scopes_.shown_in({}), scope) && hidden_by_mark(entry.path, entry.digest);
  next.unfit = is_unfit(entry.path, entry.digest);
  next.unnamed = layout::is_start_list(entry.path);
  next.of_set = layout::classify(entry.path).family == layout::Family::kTritonKernel;
  const Leaf* const known = trail.last().leaf_of(scope);
  const bool was = known != nullptr && known->visible();
  const bool same = known != nullptr && known->digest == next.digest && known->size == next.size &&
                    known->mtime_ns == next.mtime_ns && known->mode == next.mode;
  loaded_time_ = entry.mtime_ns;
  change_leaf(trail, scope, [&](std::vector<Leaf>& leaves) {
    const auto place = std::ranges::find(leaves, scope, &Leaf::scope);
    if (place == leaves.end()) {
      leaves.push_back(std::move(next));
      known_.add(scope);
    } else {
      *place = std::move(next);
    }
  });
  if (!same) judge_set_again(trail, entry.path, scope);
  const bool is = trail.last().leaf_of(scope)->visible();
  if (same && was == is) return Change::kNone;
  return was || is ? Change::kVisible : Change::kHidden;
}

bool EntryTree::remove(ScopeIndex scope, std::string_view path) {
  note(path, nullptr);
  Trail trail = trail_of(path);
  if (!trail.whole()) return false;
  const Leaf* const leaf = trail.last().leaf_of(scope);
  if (leaf == nullptr) return false;
  const bool was = leaf->visible();
  change_leaf(trail, scope,
              [scope](std::vector<Leaf>& leaves) { leaves.erase(std::ranges::find(leaves, scope, &Leaf::scope)); });
  known_.remove(scope);
  for (size_t depth = trail.names.size(); depth > 0; --depth) {
    if (!trail.nodes[depth]->leaves.empty() || !trail.nodes[depth]->children().empty()) break;
    auto& siblings = trail.nodes[depth - 1]->directory->children;
    siblings.erase(siblings.find(trail.names[depth - 1]));
  }
  return was;
}

std::vector<std::string> EntryTree::show(const std::string& root, const std::vector<remote::ScopeId>& scopes) {
  std::vector<std::string> paths;
  for (const ScopeIndex changed : scopes_.show(root, scopes)) {
    std::ranges::move(paths_of(changed), std::back_inserter(paths));
  }
  if (!paths.empty()) all_names_changed();
  return paths;
}

std::string EntryTree::marked_path(const layout::Name& name) { return join(name.root, name.path); }

/// A leaf of the scope whose Triton set a root shows in this directory; nullptr when it shows none.
const EntryTree::Leaf* EntryTree::seen_set(const std::string& root, const std::string& directory,
                                           const PathNode& node) const {
  const Leaf* first = nullptr;
  if (node.is_file() || node.directory->open.is_empty()) return first;
  const auto* const shown = scopes_.shown_in(root);
  const bool marked = has_marks(root);
  for (const auto& [name, file] : node.children()) {
    for (const Leaf& leaf : file.leaves) {
      if (!leaf.of_set || !leaf.visible() || !scopes_.is_in(shown, leaf.scope)) continue;
      if (first != nullptr && !scopes_.precedes(leaf.scope, first->scope)) continue;
      // One file that is not marked is enough: all are, where this very set was deleted.
      if (!marked || !hidden_by_mark(join(root, join(directory, name)), leaf.digest)) first = &leaf;
    }
  }
  return first;
}

/// The leaf that a root shows of a file. `set`: seen_set() of its directory.
const EntryTree::Leaf* EntryTree::seen_leaf(const std::string& root, const std::string& path, const PathNode& file,
                                            const Leaf* set) const {
  if (!file.leaves.empty() && file.leaves.front().of_set) return set == nullptr ? nullptr : file.leaf_of(set->scope);
  const auto* const shown = scopes_.shown_in(root);
  const bool marked = has_marks(root);
  return first_leaf(file, [&](const Leaf& leaf) {
    return leaf.visible() && scopes_.is_in(shown, leaf.scope) &&
           !(marked && hidden_by_mark(join(root, path), leaf.digest));
  });
}

/// Whether a leaf here or below is shown in the root, its marks aside.
bool EntryTree::may_show(const std::string& root, const PathNode& node) const {
  const auto* const shown = scopes_.shown_in(root);
  return node.shows([&](ScopeIndex scope) { return scopes_.is_in(shown, scope); });
}

/// Whether a leaf below the directory is seen in a root with marks: those may be all of the directory's.
bool EntryTree::shows_any(const std::string& root, const std::string& directory, const PathNode& node) const {
  if (!may_show(root, node)) return false;
  if (seen_set(root, directory, node) != nullptr) return true;
  return std::ranges::any_of(node.children(), [&](const auto& one) {
    const std::string path = join(directory, one.first);
    return one.second.is_file() ? seen_leaf(root, path, one.second, nullptr) != nullptr
                                : shows_any(root, path, one.second);
  });
}

std::optional<KnownEntry> EntryTree::find(const layout::Name& name) const {
  const PathNode* const node = node_of(name.path);
  if (node == nullptr) return std::nullopt;
  const std::string directory = parent_of(name.path);
  const bool of_set = !node->leaves.empty() && node->leaves.front().of_set;
  const Leaf* const set = of_set ? seen_set(name.root, directory, *node_of(directory)) : nullptr;
  const Leaf* const leaf = seen_leaf(name.root, name.path, *node, set);
  if (leaf == nullptr) return std::nullopt;
  return known_of(name.path, *leaf);
}

bool EntryTree::knows(const layout::Name& name) const {
  const PathNode* const node = node_of(name.path);
  const auto* const shown = scopes_.shown_in(name.root);
  const auto counts = [&](const Leaf& leaf) { return !leaf.lost && scopes_.is_in(shown, leaf.scope); };
  return node != nullptr && first_leaf(*node, counts) != nullptr;
}

std::optional<codec::Entry> EntryTree::find_known(const remote::ScopeId& scope, std::string_view path) const {
  const PathNode* node = node_of(path);
  const auto index = scope_index(scope);
  if (node == nullptr || !index) return std::nullopt;
  const Leaf* leaf = node->leaf_of(*index);
  if (leaf == nullptr || leaf->lost) return std::nullopt;
  return entry_of(std::string(path), *leaf);
}

std::optional<KnownEntry> EntryTree::start_list(const std::string& root, std::string_view key) const {
  const std::string path = layout::start_list_path(key);
  const auto* const shown = scopes_.shown_in(root);
  const auto counts = [&](const Leaf& one) { return one.usable() && scopes_.is_in(shown, one.scope); };
  const PathNode* const node = node_of(path);
  const Leaf* const leaf = node == nullptr ? nullptr : first_leaf(*node, counts);
  return leaf == nullptr ? std::nullopt : std::optional(known_of(path, *leaf));
}

std::optional<codec::Digest> EntryTree::find_unused(const remote::ScopeId& scope, std::string_view path) const {
  const PathNode* node = node_of(path);
  const auto index = scope_index(scope);
  const Leaf* leaf = node == nullptr || !index ? nullptr : node->leaf_of(*index);
  if (leaf == nullptr || leaf->lost || leaf->visible()) return std::nullopt;
  return leaf->digest;
}

bool EntryTree::has_directory(const layout::Name& directory) const {
  const PathNode* node = node_of(directory.path);
  if (node == nullptr || node->is_file() || !may_show(directory.root, *node)) return false;
  return !has_marks(directory.root) || shows_any(directory.root, directory.path, *node);
}

std::vector<Child> EntryTree::list(const layout::Name& directory) const {
  std::vector<Child> children;
  const PathNode* node = node_of(directory.path);
  if (node == nullptr) return children;
  const bool marked = has_marks(directory.root);
  const Leaf* const set = seen_set(directory.root, directory.path, *node);
  for (const auto& [name, child] : node->children()) {
    if (!may_show(directory.root, child)) continue;
    const std::string path = join(directory.path, name);
    if (child.is_file() && seen_leaf(directory.root, path, child, set) == nullptr) continue;
    if (!child.is_file() && marked && !shows_any(directory.root, path, child)) continue;
    children.push_back({std::string(std::string_view(name)), !child.is_file()});
  }
  return children;
}

std::vector<KnownEntry> EntryTree::entries_in(const layout::Name& directory) const {
  std::vector<KnownEntry> entries;
  const PathNode* node = node_of(directory.path);
  if (node == nullptr) return entries;
  const Leaf* const set = seen_set(directory.root, directory.path, *node);
  for (const auto& [name, child] : node->children()) {
    if (!child.is_file()) continue;
    const std::string path = join(directory.path, name);
    if (const Leaf* const leaf = seen_leaf(directory.root, path, child, set)) entries.push_back(known_of(path, *leaf));
  }
  return entries;
}

/// Visits the files here and below, those behind `after`, a path relative to this node; all for the empty one. `path`
/// is the node's own. Returns false when the visitor wants no more.
bool EntryTree::visit(const PathNode& node, std::string& path, std::string_view after, const Visitor& visitor) {
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

std::vector<KnownEntry> EntryTree::newest(size_t limit) const {
  struct Found {
    std::string path;
    const Leaf* leaf;
    bool operator<(const Found& other) const { return leaf->mtime_ns > other.leaf->mtime_ns; }
  };
  std::priority_queue<Found> oldest_first;
  std::string path;
  visit(root_, path, {}, [&](const std::string& at, const PathNode& node) {
    const Leaf* const leaf =
        first_leaf(node, [this](const Leaf& one) { return one.visible() && scopes_.contains(one.scope); });
    if (leaf == nullptr) return true;
    if (oldest_first.size() == limit) {
      if (limit == 0 || oldest_first.top().leaf->mtime_ns >= leaf->mtime_ns) return limit > 0;
      oldest_first.pop();
    }
    oldest_first.push({at, leaf});
    return true;
  });
  std::vector<KnownEntry> entries(oldest_first.size());
  for (auto place = entries.rbegin(); place != entries.rend(); ++place, oldest_first.pop()) {
    *place = known_of(oldest_first.top().path, *oldest_first.top().leaf);
  }
  return entries;
}

std::vector<EntryTree::Candidate> EntryTree::candidates(const remote::ScopeId& scope,
                                                        std::string_view directory) const {
  std::vector<Candidate> found;
  const auto index = scope_index(scope);
  const PathNode* node = node_of(directory);
  if (node == nullptr || !index) return found;
  std::string path(directory);
  visit(*node, path, {}, [&](const std::string& at, const PathNode& one) {
    if (const Leaf* leaf = one.leaf_of(*index)) found.push_back({at, leaf->lost});
    return true;
  });
  return found;
}

std::vector<std::string> EntryTree::paths_of(ScopeIndex scope) const {
  std::vector<std::string> paths;
  if (!has_entries(scope)) return paths;
  std::string path;
  visit(root_, path, {}, [&](const std::string& at, const PathNode& node) {
    if (node.leaf_of(scope) != nullptr) paths.push_back(at);
    return true;
  });
  return paths;
}

EntryTree::Page EntryTree::page_of(ScopeIndex scope, std::string_view after, size_t limit) const {
  Page page;
  if (limit == 0 || !has_entries(scope)) return page;
  std::string path;
  size_t seen = 0;
  visit(root_, path, after, [&](const std::string& at, const PathNode& node) {
    if (const Leaf* const leaf = node.leaf_of(scope)) page.entries.push_back(entry_of(at, *leaf));
    if (page.entries.size() < limit && ++seen < kPageMost) return true;
    page.next = at;
    return false;
  });
  return page;
}

uint64_t EntryTree::start_lists() const {
  const PathNode* const lists = node_of(layout::kStartLists);
  uint64_t count = 0;
  if (lists == nullptr) return count;
  for (const auto& [name, list] : lists->children()) {
    count += static_cast<uint64_t>(
        std::ranges::count_if(list.leaves, [this](const Leaf& leaf) { return scopes_.contains(leaf.scope); }));
  }
  return count;
}

void EntryTree::watch(const std::vector<std::string>& paths) {
  touched_.clear();
  watched_.clear();
  watched_.insert(paths.begin(), paths.end());
}

std::map<std::string, std::vector<codec::Digest>> EntryTree::end_watch() {
  watched_.clear();
  return std::exchange(touched_, {});
}

void EntryTree::await_echo(const std::string& path, const codec::Digest& digest) {
  awaited_[path].push_back(digest);
  awaited_order_.push_back(path);
  // One for each echo that has come, or never will because a later change of the path hid it: no more than these.
  if (awaited_order_.size() <= kAwaitedLimit) return;
  const auto oldest = awaited_.find(awaited_order_.front());
  awaited_order_.pop_front();
  if (oldest == awaited_.end()) return;
  oldest->second.erase(oldest->second.begin());
  if (oldest->second.empty()) awaited_.erase(oldest);
}

std::set<std::string> EntryTree::awaited_of(ScopeIndex scope) const {
  std::set<std::string> paths;
  for (const auto& [path, digests] : awaited_) {
    const PathNode* const node = node_of(path);
    const Leaf* const leaf = node == nullptr ? nullptr : node->leaf_of(scope);
    if (leaf != nullptr && std::ranges::find(digests, leaf->digest) != digests.end()) paths.insert(path);
  }
  return paths;
}

bool EntryTree::awaits() const {
  return std::ranges::any_of(awaited_, [this](const auto& one) {
    const PathNode* const node = node_of(one.first);
    return node != nullptr && std::ranges::any_of(node->leaves, [&](const Leaf& leaf) {
             return std::ranges::find(one.second, leaf.digest) != one.second.end();
           });
  });
}

void EntryTree::stop_awaiting(const std::set<std::string>& paths) {
  for (const auto& path : paths) awaited_.erase(path);
}

}  // namespace inductorfs::catalog
