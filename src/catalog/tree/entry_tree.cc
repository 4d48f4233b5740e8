// SPDX-License-Identifier: Apache-2.0
#include "catalog/tree/entry_tree.h"

#include <algorithm>
#include <iterator>
#include <queue>
#include <utility>

#include "inductorfs/base/text.h"
#include "inductorfs/layout/start_list.h"

namespace inductorfs::catalog {
namespace {

using Leaf = PathTree::Leaf;
using PathNode = PathTree::PathNode;

/// Paths whose entry this host cannot use.
constexpr size_t kUnfitLimit = 65'536;
constexpr size_t kWhyLimit = 512;
/// Keys of entries that were removed.
constexpr size_t kRemovedLimit = 65'536;
/// The leaves below a directory that are looked at for the reason of its absence.
constexpr size_t kAbsentLimit = 256;

/// What programs ask for of an artefact at this path: its key directory, or itself.
uint64_t hash_of_key(std::string_view path) {
  const std::string key = layout::classify(path).key_directory;
  return std::hash<std::string_view>{}(key.empty() ? path : key);
}

std::string join(std::string_view directory, std::string_view name) {
  std::string path(directory);
  if (!path.empty()) path += '/';
  path += name;
  return path;
}

/// The leaf whose scope's id sorts first among those that count.
const Leaf* first_leaf(const FollowedScopes& scopes, const PathNode& node, const auto& counts) {
  const Leaf* first = nullptr;
  for (const Leaf& leaf : node.leaves) {
    if (counts(leaf) && (first == nullptr || scopes.precedes(leaf.scope, first->scope))) first = &leaf;
  }
  return first;
}

/// What one root sees of the nodes that it asks for. Lives no longer than the question.
class RootView {
 public:
  RootView(const FollowedScopes& scopes, const HiddenMarks& marks, const std::string& root)
      : scopes_(scopes), marks_(marks), root_(root), shown_(scopes.shown_in(root)), marked_(marks.has_own(root)) {}

  [[nodiscard]] bool has(ScopeIndex scope) const { return scopes_.is_in(shown_, scope); }
  [[nodiscard]] bool has(const Leaf& leaf) const { return has(leaf.scope); }
  /// The first leaf of the root's scopes that counts, seen or not; nullptr also where no node is.
  [[nodiscard]] const Leaf* first(const PathNode* node, const auto& counts) const {
    if (node == nullptr) return nullptr;
    return first_leaf(scopes_, *node, [&](const Leaf& leaf) { return has(leaf) && counts(leaf); });
  }

  /// A leaf of the scope whose Triton set is seen in this directory; nullptr when none is.
  [[nodiscard]] const Leaf* set_in(const std::string& directory, const PathNode& node) const {
    const Leaf* found = nullptr;
    if (node.is_file() || node.directory->open.is_empty()) return found;
    for (const auto& [name, file] : node.children()) {
      for (const Leaf& leaf : file.leaves) {
        if (!leaf.of_set || !leaf.visible() || !has(leaf)) continue;
        if (found != nullptr && !scopes_.precedes(leaf.scope, found->scope)) continue;
        // One file that is not marked is enough: all are, where this very set was deleted.
        if (!is_marked(join(directory, name), leaf)) found = &leaf;
      }
    }
    return found;
  }
  /// The leaf that is seen of a file. `set`: set_in() its directory.
  [[nodiscard]] const Leaf* leaf_of(const std::string& path, const PathNode& file, const Leaf* set) const {
    if (file.is_of_set()) return set == nullptr ? nullptr : file.leaf_of(set->scope);
    return first(&file, [&](const Leaf& leaf) { return leaf.visible() && !is_marked(path, leaf); });
  }
  /// Whether a leaf is seen here or below.
  [[nodiscard]] bool sees(const std::string& path, const PathNode& node, const Leaf* set) const {
    if (!may_see(node)) return false;
    if (node.is_file()) return leaf_of(path, node, set) != nullptr;
    // A root's marks may be all that the directory has.
    return !marked_ || sees_below(path, node);
  }

 private:
  [[nodiscard]] bool is_marked(const std::string& path, const Leaf& leaf) const {
    return marked_ && marks_.contains(join(root_, path), leaf.digest);
  }
  /// Whether a leaf is seen here or below, the root's marks aside.
  [[nodiscard]] bool may_see(const PathNode& node) const {
    if (node.is_file()) return first(&node, [](const Leaf& leaf) { return leaf.visible(); }) != nullptr;
    return node.directory->visible.any_of([this](ScopeIndex scope) { return scopes_.is_in(shown_, scope); });
  }
  [[nodiscard]] bool sees_below(const std::string& directory, const PathNode& node) const {
    const Leaf* const set = set_in(directory, node);
    if (set != nullptr) return true;
    return std::ranges::any_of(node.children(),
                               [&](const auto& one) { return sees(join(directory, one.first), one.second, set); });
  }

  const FollowedScopes& scopes_;
  const HiddenMarks& marks_;
  const std::string& root_;
  const std::set<ScopeIndex>* const shown_;
  const bool marked_;
};

}  // namespace

EntryTree::EntryTree(const std::vector<remote::ScopeId>& scopes, uint64_t entry_limit) : entry_limit_(entry_limit) {
  (void)follow(scopes);  // nobody follows anything yet
}

std::vector<std::string> EntryTree::show(const std::string& root, const std::vector<remote::ScopeId>& scopes) {
  std::vector<std::string> paths;
  for (const ScopeIndex changed : scopes_.show(root, scopes)) {
    std::ranges::move(paths_.of_scope(changed), std::back_inserter(paths));
  }
  if (!paths.empty()) all_names_changed();
  return paths;
}

EntryTree::Change EntryTree::set(ScopeIndex scope, const codec::Entry& entry) {
  if (!scopes_.contains(scope)) return Change::kGone;
  echoes_.note(entry.path, &entry.digest);
  PathTree::Trail trail = paths_.trail_of(entry.path);
  if (!trail.may_be_file()) return Change::kRefused;
  const Leaf* const known = trail.leaf_of(scope);
  if (known == nullptr && paths_.known().total() >= entry_limit_) return Change::kRefused;

  Leaf next = paths_.make_leaf(scope, entry);
  next.hidden = is_of_mountpoint(next) && marks_.contains(entry.path, entry.digest);
  const auto unfit = unfit_.find(entry.path);
  next.unfit = unfit != unfit_.end() && unfit->second.digest == entry.digest;
  const bool was = known != nullptr && known->visible();
  const bool same = known != nullptr && known->digest == next.digest && known->size == next.size &&
                    known->mtime_ns == next.mtime_ns && known->mode == next.mode;
  paths_.set(trail, std::move(next));
  if (!same) judge_set_again(trail, entry.path, scope);
  const bool is = trail.leaf_of(scope)->visible();
  if (same && was == is) return Change::kNone;
  return was || is ? Change::kVisible : Change::kHidden;
}

bool EntryTree::remove(ScopeIndex scope, std::string_view path) {
  echoes_.note(path, nullptr);
  const PathTree::Trail trail = paths_.trail_of(path);
  const Leaf* const leaf = trail.leaf_of(scope);
  if (leaf == nullptr) return false;
  const bool was = leaf->visible();
  if (scopes_.contains(scope)) note_removed(scope, path);
  paths_.remove(trail, scope);
  return was;
}

void EntryTree::note_removed(ScopeIndex scope, std::string_view path) {
  const std::pair removed{hash_of_key(path), scope};
  if (!removed_.insert(removed).second) return;
  removed_order_.push_back(removed);
  if (removed_order_.size() <= kRemovedLimit) return;
  removed_.erase(removed_order_.front());
  removed_order_.pop_front();
}

/// Requires: the leaf's scope is followed.
KnownEntry EntryTree::known_of(const std::string& path, const Leaf& leaf) const {
  return {leaf.entry(path), scopes_.id_of(leaf.scope)};
}

std::optional<KnownEntry> EntryTree::find(const layout::Name& name) const {
  const PathNode* const node = paths_.find(name.path);
  if (node == nullptr) return std::nullopt;
  const RootView view(scopes_, marks_, name.root);
  const std::string directory = parent_of(name.path);
  const Leaf* const set = node->is_of_set() ? view.set_in(directory, *paths_.find(directory)) : nullptr;
  const Leaf* const leaf = view.leaf_of(name.path, *node, set);
  if (leaf == nullptr) return std::nullopt;
  return known_of(name.path, *leaf);
}

bool EntryTree::knows(const layout::Name& name) const {
  const RootView view(scopes_, marks_, name.root);
  return view.first(paths_.find(name.path), [](const Leaf& leaf) { return !leaf.lost; }) != nullptr;
}

std::optional<KnownEntry> EntryTree::start_list(const std::string& root, std::string_view key) const {
  const std::string path = layout::start_list_path(key);
  const RootView view(scopes_, marks_, root);
  const Leaf* const leaf = view.first(paths_.find(path), [](const Leaf& one) { return one.usable(); });
  return leaf == nullptr ? std::nullopt : std::optional(known_of(path, *leaf));
}

EntryTree::Files EntryTree::files_of(const layout::Name& name) const {
  Files files;
  const RootView view(scopes_, marks_, name.root);
  const auto add = [&](const std::string& path, const PathNode& file) {
    for (const Leaf& leaf : file.leaves) {
      if (!leaf.lost && view.has(leaf)) files.emplace_back(path, leaf.digest);
    }
  };
  const auto classified = layout::classify(name.path);
  const bool of_set = classified.family == layout::Family::kTritonKernel;
  const PathNode* const node = paths_.find(of_set ? classified.key_directory : name.path);
  if (node != nullptr && of_set) {
    // Whatever set stands there: it must not come up when the last file of another one has gone.
    for (const auto& [file, one] : node->children()) {
      if (one.is_of_set()) add(join(classified.key_directory, file), one);
    }
  } else if (node != nullptr) {
    add(name.path, *node);
  }
  if (const auto awaited = echoes_.awaited().find(name.path); awaited != echoes_.awaited().end()) {
    for (const auto& digest : awaited->second) files.emplace_back(name.path, digest);
  }
  return files;
}

std::set<std::string> EntryTree::awaited_of(std::optional<ScopeIndex> scope) const {
  std::set<std::string> paths;
  for (const auto& [path, digests] : echoes_.awaited()) {
    const PathNode* const node = paths_.find(path);
    const auto is_awaited = [&, &of = digests](const Leaf& leaf) {
      return leaf.scope == scope.value_or(leaf.scope) && std::ranges::find(of, leaf.digest) != of.end();
    };
    if (node != nullptr && std::ranges::any_of(node->leaves, is_awaited)) paths.insert(path);
  }
  return paths;
}

bool EntryTree::has_directory(const layout::Name& directory) const {
  const PathNode* const node = paths_.find(directory.path);
  if (node == nullptr || node->is_file()) return false;
  return RootView(scopes_, marks_, directory.root).sees(directory.path, *node, nullptr);
}

std::vector<Child> EntryTree::list(const layout::Name& directory) const {
  std::vector<Child> children;
  const PathNode* const node = paths_.find(directory.path);
  if (node == nullptr) return children;
  const RootView view(scopes_, marks_, directory.root);
  const Leaf* const set = view.set_in(directory.path, *node);
  for (const auto& [name, child] : node->children()) {
    if (!view.sees(join(directory.path, name), child, set)) continue;
    children.push_back({std::string(std::string_view(name)), !child.is_file()});
  }
  return children;
}

std::vector<KnownEntry> EntryTree::entries_in(const layout::Name& directory) const {
  std::vector<KnownEntry> entries;
  const PathNode* const node = paths_.find(directory.path);
  if (node == nullptr) return entries;
  const RootView view(scopes_, marks_, directory.root);
  const Leaf* const set = view.set_in(directory.path, *node);
  for (const auto& [name, child] : node->children()) {
    if (!child.is_file()) continue;
    const std::string path = join(directory.path, name);
    if (const Leaf* const leaf = view.leaf_of(path, child, set)) entries.push_back(known_of(path, *leaf));
  }
  return entries;
}

std::vector<KnownEntry> EntryTree::newest(size_t limit) const {
  struct Found {
    std::string path;
    const Leaf* leaf;
    bool operator<(const Found& other) const { return leaf->mtime_ns > other.leaf->mtime_ns; }
  };
  std::priority_queue<Found> oldest_first;
  paths_.visit_below({}, [&](const std::string& at, const PathNode& node) {
    const Leaf* const leaf =
        first_leaf(scopes_, node, [this](const Leaf& one) { return one.visible() && scopes_.contains(one.scope); });
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

std::optional<codec::Entry> EntryTree::find_known(const remote::ScopeId& scope, std::string_view path) const {
  const PathNode* const node = paths_.find(path);
  const auto index = scopes_.index_of(scope);
  const Leaf* const leaf = node == nullptr || !index ? nullptr : node->leaf_of(*index);
  if (leaf == nullptr || leaf->lost) return std::nullopt;
  return leaf->entry(std::string(path));
}

std::optional<codec::Digest> EntryTree::find_unused(const remote::ScopeId& scope, std::string_view path) const {
  const PathNode* const node = paths_.find(path);
  const auto index = scopes_.index_of(scope);
  const Leaf* const leaf = node == nullptr || !index ? nullptr : node->leaf_of(*index);
  if (leaf == nullptr || leaf->lost || leaf->visible()) return std::nullopt;
  return leaf->digest;
}

std::vector<EntryTree::Candidate> EntryTree::candidates(const remote::ScopeId& scope,
                                                        std::string_view directory) const {
  std::vector<Candidate> found;
  const auto index = scopes_.index_of(scope);
  if (!index) return found;
  paths_.visit_below(directory, [&](const std::string& at, const PathNode& one) {
    if (const Leaf* const leaf = one.leaf_of(*index)) found.push_back({at, leaf->lost});
    return true;
  });
  return found;
}

uint64_t EntryTree::start_lists() const {
  const PathNode* const lists = paths_.find(layout::kStartLists);
  uint64_t count = 0;
  if (lists == nullptr) return count;
  for (const auto& [name, list] : lists->children()) {
    count += static_cast<uint64_t>(
        std::ranges::count_if(list.leaves, [this](const Leaf& leaf) { return scopes_.contains(leaf.scope); }));
  }
  return count;
}

std::optional<HiddenMark> EntryTree::mark_hidden(const std::string& path, const codec::Digest& digest) {
  auto added = marks_.add({path, digest});
  paths_.set_flags(path, digest, [this](Leaf& leaf) { leaf.hidden = leaf.hidden || is_of_mountpoint(leaf); });
  const auto name = layout::name_of(path);
  if (added.is_new && !name.root.empty()) paths_.names_changed_above(name.path);
  return std::move(added.dropped);
}

void EntryTree::unmark_hidden(const std::string& path, const codec::Digest& digest) {
  if (!marks_.remove({path, digest})) return;
  paths_.set_flags(path, digest, [](Leaf& leaf) { leaf.hidden = false; });
  const auto name = layout::name_of(path);
  if (!name.root.empty()) paths_.names_changed_above(name.path);
}

std::vector<HiddenMark> EntryTree::unmark_root(std::string_view root) {
  auto shown = marks_.of_root(root);
  for (const auto& [path, digest] : shown) unmark_hidden(path, digest);
  return shown;
}

void EntryTree::mark_lost(std::string_view path, const codec::Digest& digest) {
  paths_.set_flags(path, digest, [](Leaf& leaf) { leaf.lost = true; });
}

void EntryTree::mark_unfit(const std::string& path, const codec::Digest& digest, const std::string& why) {
  const PathNode* const node = paths_.find(path);
  const bool known = node != nullptr && std::ranges::find(node->leaves, digest, &Leaf::digest) != node->leaves.end();
  if (!known) return;
  const auto give_up = [this](auto mark) {
    paths_.set_flags(mark->first, mark->second.digest, [](Leaf& leaf) { leaf.unfit = false; });
    unfit_.erase(mark);
  };
  if (const auto earlier = unfit_.find(path); earlier != unfit_.end()) {
    give_up(earlier);
  } else if (unfit_.size() >= kUnfitLimit) {
    give_up(unfit_.begin());
  }
  unfit_.emplace(path, Unfit{digest, why.substr(0, kWhyLimit)});
  paths_.set_flags(path, digest, [](Leaf& leaf) { leaf.unfit = true; });
}

/// What this host could not use of a set may be another thing now that a file of the set, at this path, has come.
void EntryTree::judge_set_again(const PathTree::Trail& trail, std::string_view path, ScopeIndex scope) {
  const PathTree::Directory& directory = trail.parent();
  if (!trail.leaf_of(scope)->of_set || !directory.broken.has(scope)) return;
  std::vector<std::pair<std::string, codec::Digest>> unfit;
  for (const auto& [name, file] : directory.children) {
    const Leaf* const leaf = file.leaf_of(scope);
    std::string at = join(parent_of(path), name);
    if (leaf != nullptr && leaf->unfit && at != path) unfit.emplace_back(std::move(at), leaf->digest);
  }
  for (const auto& [at, digest] : unfit) {
    unfit_.erase(at);
    paths_.set_flags(at, digest, [](Leaf& leaf) { leaf.unfit = false; });
  }
}

std::string EntryTree::why_unfit(const layout::Name& name) const {
  const RootView view(scopes_, marks_, name.root);
  std::string why;
  size_t left = kAbsentLimit;
  paths_.visit_below(name.path, [&](const std::string& path, const PathNode& file) {
    const Leaf* const leaf = view.first(&file, [](const Leaf&) { return true; });
    const auto found = unfit_.find(path);
    if (leaf != nullptr && leaf->unfit && found != unfit_.end()) why = found->second.why;
    return why.empty() && --left > 0;
  });
  return why;
}

Absence EntryTree::why_absent(const layout::Name& name) const {
  const RootView view(scopes_, marks_, name.root);
  Absence why = Absence::kNever;
  size_t left = kAbsentLimit;
  paths_.visit_below(name.path, [&](const std::string&, const PathNode& file) {
    const Leaf* const leaf = view.first(&file, [](const Leaf& one) { return !one.unnamed; });
    if (leaf == nullptr) return --left > 0;
    why = leaf->lost ? Absence::kLost : leaf->unfit ? Absence::kUnfit : Absence::kDeleted;
    return false;
  });
  if (why != Absence::kNever) return why;
  const uint64_t hash = hash_of_key(name.path);
  for (auto at = removed_.lower_bound({hash, 0}); at != removed_.end() && at->first == hash; ++at) {
    if (view.has(at->second)) return Absence::kRemoved;
  }
  return why;
}

std::vector<std::string> EntryTree::unmark_unfit() {
  std::vector<std::string> seen;
  const auto marks = std::exchange(unfit_, {});
  for (const auto& [path, mark] : marks) {
    paths_.set_flags(path, mark.digest, [](Leaf& leaf) { leaf.unfit = false; });
  }
  for (const auto& [path, mark] : marks) {
    const PathNode* const node = paths_.find(path);
    const auto is_seen = [&, &digest = mark.digest](const Leaf& leaf) {
      return leaf.digest == digest && leaf.visible() && scopes_.contains(leaf.scope);
    };
    if (node != nullptr && std::ranges::any_of(node->leaves, is_seen)) seen.push_back(path);
  }
  return seen;
}

}  // namespace inductorfs::catalog
