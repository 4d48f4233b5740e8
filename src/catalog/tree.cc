// SPDX-License-Identifier: Apache-2.0
#include "tree.h"

#include <algorithm>
#include <queue>
#include <utility>

namespace inductorfs::catalog {
namespace {

/// Origins are shared between entries. A cluster with more writers than this (or a hostile one) only loses the
/// sharing: the table starts afresh and the strings live as long as their entries.
constexpr size_t kOriginTableLimit = 65'536;

/// Deleted here again and again before any of it reached the cluster: the oldest marks of the path go.
constexpr size_t kMarksPerPath = 8;

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

Tree::Tree(std::vector<remote::ScopeId> scopes, uint64_t entry_limit)
    : scopes_(std::move(scopes)), entry_limit_(entry_limit) {}

Tree::Trail Tree::trail_of(std::string_view path) {
  Trail trail;
  trail.nodes.push_back(&root_);
  for_each_name(path, [&](std::string_view name) {
    trail.names.push_back(name);
    if (trail.nodes.size() != trail.names.size()) return true;  // a parent is missing already
    auto& children = trail.last().children;
    if (auto found = children.find(name); found != children.end()) trail.nodes.push_back(found->second.get());
    return true;
  });
  return trail;
}

const Tree::Node* Tree::node_of(std::string_view path) const {
  const Node* node = &root_;
  for_each_name(path, [&](std::string_view name) {
    auto found = node->children.find(name);
    node = found == node->children.end() ? nullptr : found->second.get();
    return node != nullptr;
  });
  return node;
}

const Tree::Leaf* Tree::leaf_of(std::string_view path) const {
  const Node* node = node_of(path);
  return node == nullptr ? nullptr : node->leaf.get();
}

Known Tree::known_of(const std::string& path, const Leaf& leaf) const {
  Known known;
  known.entry = {path, leaf.digest, leaf.size, leaf.mode, leaf.mtime_ns, *leaf.origin};
  known.scope = scopes_[leaf.scope];
  return known;
}

std::shared_ptr<const std::string> Tree::shared_origin(const std::string& origin) {
  if (auto found = origins_.find(origin); found != origins_.end()) return found->second;
  if (origins_.size() >= kOriginTableLimit) origins_.clear();
  return origins_.emplace(origin, std::make_shared<const std::string>(origin)).first->second;
}

bool Tree::hidden_by_mark(const std::string& path, const codec::Digest& digest) {
  auto found = marks_.find(path);
  if (found == marks_.end()) return false;
  return std::ranges::find(found->second, digest) != found->second.end();
}

void Tree::count(const Trail& trail, bool before, bool after) {
  if (before == after) return;
  for (Node* node : trail.nodes) node->visible += after ? 1 : uint64_t(-1);
}

void Tree::note(std::string_view path) {
  if (watched_.contains(path)) touched_.emplace(path);
}

Tree::Change Tree::set(ScopeIndex scope, const codec::Entry& entry) {
  note(entry.path);
  Trail trail = trail_of(entry.path);
  const bool blocked = trail.whole() ? trail.last().leaf == nullptr : trail.last().leaf != nullptr;
  if (blocked || trail.names.empty()) return Change::kRefused;
  if (!trail.whole() && known_ >= entry_limit_) return Change::kRefused;

  Leaf next{entry.digest,
            entry.size,
            entry.mtime_ns,
            shared_origin(entry.origin),
            entry.mode,
            scope,
            hidden_by_mark(entry.path, entry.digest),
            false};
  if (trail.whole()) return update(trail, std::move(next));

  while (!trail.whole()) {
    const std::string_view name = trail.names[trail.nodes.size() - 1];
    auto made = trail.last().children.emplace(name, std::make_unique<Node>()).first;
    trail.nodes.push_back(made->second.get());
  }
  trail.last().leaf = std::make_unique<Leaf>(std::move(next));
  ++known_;
  const bool visible = trail.last().leaf->visible();
  count(trail, false, visible);
  return visible ? Change::kVisible : Change::kHidden;
}

Tree::Change Tree::update(Trail& trail, Leaf next) {
  Leaf& leaf = *trail.last().leaf;
  const bool was = leaf.visible();
  const bool is = next.visible();
  const bool same = leaf.digest == next.digest && leaf.size == next.size && leaf.mtime_ns == next.mtime_ns &&
                    leaf.mode == next.mode && leaf.scope == next.scope && was == is;
  leaf = std::move(next);
  count(trail, was, is);
  if (same) return Change::kNone;
  return was || is ? Change::kVisible : Change::kHidden;
}

bool Tree::remove(ScopeIndex scope, std::string_view path) {
  note(path);
  Trail trail = trail_of(path);
  if (!trail.whole() || trail.last().leaf == nullptr || trail.last().leaf->scope != scope) return false;
  const bool was = trail.last().leaf->visible();
  count(trail, was, false);
  trail.last().leaf.reset();
  --known_;
  for (size_t depth = trail.names.size(); depth > 0; --depth) {
    if (trail.nodes[depth]->leaf != nullptr || !trail.nodes[depth]->children.empty()) break;
    auto& siblings = trail.nodes[depth - 1]->children;
    siblings.erase(siblings.find(trail.names[depth - 1]));
  }
  return was;
}

std::optional<Known> Tree::find(std::string_view path) const {
  const Leaf* leaf = leaf_of(path);
  if (leaf == nullptr || !leaf->visible()) return std::nullopt;
  return known_of(std::string(path), *leaf);
}

std::optional<Known> Tree::find_known(std::string_view path) const {
  const Leaf* leaf = leaf_of(path);
  if (leaf == nullptr || leaf->lost) return std::nullopt;
  return known_of(std::string(path), *leaf);
}

bool Tree::has_directory(std::string_view directory) const {
  const Node* node = node_of(directory);
  return node != nullptr && node->leaf == nullptr && node->visible > 0;
}

std::vector<Child> Tree::list(std::string_view directory) const {
  std::vector<Child> children;
  const Node* node = node_of(directory);
  if (node == nullptr) return children;
  for (const auto& [name, child] : node->children) {
    if (child->visible > 0) children.push_back({name, child->leaf == nullptr});
  }
  return children;
}

std::vector<Known> Tree::entries_in(std::string_view directory) const {
  std::vector<Known> entries;
  const Node* node = node_of(directory);
  if (node == nullptr) return entries;
  for (const auto& [name, child] : node->children) {
    if (child->leaf != nullptr && child->leaf->visible()) {
      entries.push_back(known_of(join(directory, name), *child->leaf));
    }
  }
  return entries;
}

void Tree::visit(const Node& node, std::string& path, const Visitor& visitor) {
  if (node.leaf != nullptr) visitor(path, *node.leaf);
  const size_t length = path.size();
  for (const auto& [name, child] : node.children) {
    if (!path.empty()) path += '/';
    path += name;
    visit(*child, path, visitor);
    path.resize(length);
  }
}

std::vector<Known> Tree::newest(size_t limit) const {
  struct Found {
    std::string path;
    const Leaf* leaf;
    bool operator<(const Found& other) const { return leaf->mtime_ns > other.leaf->mtime_ns; }
  };
  std::priority_queue<Found> oldest_first;
  std::string path;
  visit(root_, path, [&](const std::string& at, const Leaf& leaf) {
    if (!leaf.visible() || limit == 0) return;
    if (oldest_first.size() == limit) {
      if (oldest_first.top().leaf->mtime_ns >= leaf.mtime_ns) return;
      oldest_first.pop();
    }
    oldest_first.push({at, &leaf});
  });
  std::vector<Known> entries(oldest_first.size());
  for (auto place = entries.rbegin(); place != entries.rend(); ++place, oldest_first.pop()) {
    *place = known_of(oldest_first.top().path, *oldest_first.top().leaf);
  }
  return entries;
}

std::vector<Tree::Candidate> Tree::candidates(const remote::ScopeId& scope, std::string_view directory) const {
  std::vector<Candidate> found;
  const auto index = scope_index(scope);
  const Node* node = node_of(directory);
  if (node == nullptr || !index) return found;
  std::string path(directory);
  visit(*node, path, [&](const std::string& at, const Leaf& leaf) {
    if (leaf.scope == *index) found.push_back({at, leaf.lost});
  });
  return found;
}

std::vector<std::string> Tree::paths_of(ScopeIndex scope) const {
  std::vector<std::string> paths;
  std::string path;
  visit(root_, path, [&](const std::string& at, const Leaf& leaf) {
    if (leaf.scope == scope) paths.push_back(at);
  });
  return paths;
}

std::optional<Tree::ScopeIndex> Tree::scope_index(const remote::ScopeId& scope) const {
  auto found = std::ranges::find(scopes_, scope);
  if (found == scopes_.end()) return std::nullopt;
  return static_cast<ScopeIndex>(found - scopes_.begin());
}

void Tree::set_flags(std::string_view path, const codec::Digest& digest, const std::function<void(Leaf&)>& change) {
  Trail trail = trail_of(path);
  if (!trail.whole() || trail.last().leaf == nullptr || trail.last().leaf->digest != digest) return;
  Leaf& leaf = *trail.last().leaf;
  const bool was = leaf.visible();
  change(leaf);
  count(trail, was, leaf.visible());
}

void Tree::mark_hidden(const std::string& path, const codec::Digest& digest) {
  auto& digests = marks_[path];
  if (std::ranges::find(digests, digest) == digests.end()) digests.push_back(digest);
  if (digests.size() > kMarksPerPath) {
    dropped_marks_.emplace_back(path, digests.front());
    digests.erase(digests.begin());
  }
  set_flags(path, digest, [](Leaf& leaf) { leaf.hidden = true; });
}

void Tree::unmark_hidden(const std::string& path, const codec::Digest& digest) {
  auto found = marks_.find(path);
  if (found == marks_.end()) return;
  std::erase(found->second, digest);
  if (found->second.empty()) marks_.erase(found);
  set_flags(path, digest, [](Leaf& leaf) { leaf.hidden = false; });
}

std::vector<std::pair<std::string, codec::Digest>> Tree::take_dropped_marks() {
  return std::exchange(dropped_marks_, {});
}

void Tree::mark_lost(std::string_view path, const codec::Digest& digest) {
  set_flags(path, digest, [](Leaf& leaf) { leaf.lost = true; });
}

void Tree::watch(const std::vector<std::string>& paths) {
  touched_.clear();
  watched_.clear();
  watched_.insert(paths.begin(), paths.end());
}

std::set<std::string> Tree::end_watch() {
  watched_.clear();
  return std::exchange(touched_, {});
}

}  // namespace inductorfs::catalog
