// SPDX-License-Identifier: Apache-2.0
// Which entries a root does not show: those that were deleted there, those whose bytes were lost, and those that this
// host cannot use. The second part of EntryTree.
#include <algorithm>
#include <utility>

#include "catalog/tree/entry_tree.h"

namespace inductorfs::catalog {
namespace {

/// Deleted here again and again before any of it reached the cluster: the oldest marks of the path go.
constexpr size_t kMarksPerPath = 8;
/// Paths whose entry this host cannot use.
constexpr size_t kUnfitLimit = 65'536;
constexpr size_t kWhyLimit = 512;

}  // namespace

void EntryTree::set_flags(std::string_view path, const codec::Digest& digest,
                          const std::function<void(Leaf&)>& change) {
  Trail trail = trail_of(path);
  if (!trail.whole()) return;
  std::vector<ScopeIndex> scopes;
  for (const Leaf& leaf : trail.last().leaves) {
    if (leaf.digest == digest) scopes.push_back(leaf.scope);
  }
  for (const ScopeIndex scope : scopes) {
    change_leaf(trail, scope,
                [&](std::vector<Leaf>& leaves) { change(*std::ranges::find(leaves, scope, &Leaf::scope)); });
  }
}

void EntryTree::mark_hidden(const std::string& path, const codec::Digest& digest) {
  const auto [known, first] = marks_.try_emplace(path);
  const auto name = layout::name_of(path);
  if (first && !name.root.empty()) ++marked_roots_[name.root];
  auto& digests = known->second;
  const bool is_new = std::erase(digests, digest) == 0;
  digests.push_back(digest);  // the one that was deleted last is given up last
  if (digests.size() > kMarksPerPath) {
    dropped_marks_.emplace_back(path, digests.front());
    digests.erase(digests.begin());
  }
  set_flags(path, digest, [this](Leaf& leaf) { leaf.hidden = leaf.hidden || is_shown_in_mountpoint(leaf); });
  if (is_new && !name.root.empty()) note_times_above(name.path);
}

void EntryTree::unmark_hidden(const std::string& path, const codec::Digest& digest) {
  auto found = marks_.find(path);
  if (found == marks_.end()) return;
  std::erase(found->second, digest);
  const auto name = layout::name_of(path);
  if (found->second.empty()) {
    marks_.erase(found);
    const auto root = marked_roots_.find(name.root);
    if (root != marked_roots_.end() && --root->second == 0) marked_roots_.erase(root);
  }
  set_flags(path, digest, [](Leaf& leaf) { leaf.hidden = false; });
  if (!name.root.empty()) note_times_above(name.path);
}

std::vector<std::pair<std::string, codec::Digest>> EntryTree::unmark_root(std::string_view root) {
  const auto is_below = [root](std::string_view path) {
    return path.starts_with(root) && (path.size() == root.size() || path[root.size()] == '/');
  };
  const auto first = marked_roots_.lower_bound(root);
  const bool marked = std::any_of(first, marked_roots_.end(), [&](const auto& one) { return is_below(one.first); });
  std::vector<std::pair<std::string, codec::Digest>> shown;
  if (!marked) return shown;
  for (const auto& [path, digests] : marks_) {
    if (!is_below(path) || !is_below(layout::name_of(path).root)) continue;
    for (const auto& digest : digests) shown.emplace_back(path, digest);
  }
  for (const auto& [path, digest] : shown) unmark_hidden(path, digest);
  return shown;
}

std::vector<std::pair<std::string, codec::Digest>> EntryTree::take_dropped_marks() {
  return std::exchange(dropped_marks_, {});
}

void EntryTree::mark_lost(std::string_view path, const codec::Digest& digest) {
  set_flags(path, digest, [](Leaf& leaf) { leaf.lost = true; });
}

void EntryTree::mark_unfit(const std::string& path, const codec::Digest& digest, const std::string& why) {
  const PathNode* const node = node_of(path);
  const bool known = node != nullptr && std::ranges::find(node->leaves, digest, &Leaf::digest) != node->leaves.end();
  if (!known) return;
  const auto give_up = [this](auto mark) {
    set_flags(mark->first, mark->second.digest, [](Leaf& leaf) { leaf.unfit = false; });
    unfit_.erase(mark);
  };
  if (const auto earlier = unfit_.find(path); earlier != unfit_.end()) {
    give_up(earlier);
  } else if (unfit_.size() >= kUnfitLimit) {
    give_up(unfit_.begin());
  }
  unfit_.emplace(path, Unfit{digest, why.substr(0, kWhyLimit)});
  set_flags(path, digest, [](Leaf& leaf) { leaf.unfit = true; });
}

/// What this host could not use of a set may be another thing now that a file of the set, at this path, has come.
void EntryTree::judge_set_again(const Trail& trail, std::string_view path, ScopeIndex scope) {
  const Directory& directory = *trail.nodes[trail.names.size() - 1]->directory;
  if (!trail.last().leaf_of(scope)->of_set || !directory.broken.has(scope)) return;
  std::vector<std::pair<std::string, codec::Digest>> unfit;
  for (const auto& [name, file] : directory.children) {
    const Leaf* const leaf = file.leaf_of(scope);
    std::string at(path.substr(0, path.rfind('/') + 1));
    at += name;
    if (leaf != nullptr && leaf->unfit && at != path) unfit.emplace_back(std::move(at), leaf->digest);
  }
  for (const auto& [at, digest] : unfit) {
    unfit_.erase(at);
    set_flags(at, digest, [](Leaf& leaf) { leaf.unfit = false; });
  }
}

std::string EntryTree::why_unfit(const layout::Name& name) const {
  const PathNode* const node = node_of(name.path);
  if (node == nullptr) return {};
  const auto* const shown = scopes_.shown_in(name.root);
  const Leaf* const leaf = first_leaf(*node, [&](const Leaf& one) { return scopes_.is_in(shown, one.scope); });
  if (leaf == nullptr || !leaf->unfit) return {};
  const auto found = unfit_.find(name.path);
  return found == unfit_.end() ? std::string() : found->second.why;
}

std::vector<std::string> EntryTree::unmark_unfit() {
  std::vector<std::string> seen;
  const auto marks = std::exchange(unfit_, {});
  for (const auto& [path, mark] : marks) set_flags(path, mark.digest, [](Leaf& leaf) { leaf.unfit = false; });
  for (const auto& [path, mark] : marks) {
    const PathNode* const node = node_of(path);
    const auto is_seen = [&, &digest = mark.digest](const Leaf& leaf) {
      return leaf.digest == digest && leaf.visible() && scopes_.contains(leaf.scope);
    };
    if (node != nullptr && std::ranges::any_of(node->leaves, is_seen)) seen.push_back(path);
  }
  return seen;
}

}  // namespace inductorfs::catalog
