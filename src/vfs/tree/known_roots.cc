// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <iterator>
#include <utility>

#include "inductorfs/layout/layout.h"
#include "vfs/tree/branch_paths.h"
#include "vfs/tree/paths.h"
#include "vfs/tree/root_tree.h"

/// Which directories are cache roots: those of which a name was asked for, a bounded number of each owner.
namespace inductorfs::vfs {
namespace {

constexpr std::chrono::seconds kPrunePause{1};
/// A root that was asked for later than this has a job, which would only bring it back.
constexpr std::chrono::seconds kIdle{1};

}  // namespace

bool RootTree::Roots::is_full(uid_t owner) const {
  if (known.size() >= kMostRoots) return true;
  return std::count_if(known.begin(), known.end(), [owner](const auto& one) { return one.second.owner == owner; }) >=
         static_cast<ptrdiff_t>(kMostRootsOfOne);
}

/// Makes room for a root of this owner: the one that was idle longest goes, of the same owner where that one has as
/// many as one may, else of whoever has most. A warm job of it asks the kernel alone, and brings it back with its next
/// miss.
bool RootTree::let_idle_root_go(Roots& roots, uid_t owner) {
  std::map<uid_t, size_t> counts;
  for (const auto& [path, root] : roots.known) ++counts[root.owner];
  const bool of_same = counts[owner] >= kMostRootsOfOne;
  const uid_t from =
      of_same ? owner : std::ranges::max_element(counts, {}, [](const auto& one) { return one.second; })->first;
  const auto idle_since = [&](const auto& one) {
    return one.second.owner == from ? one.second.used : SteadyTime::max();
  };
  const auto idlest = std::ranges::min_element(roots.known, {}, idle_since);
  if (std::chrono::steady_clock::now() - idle_since(*idlest) < kIdle) return false;
  roots.left.push_back(idlest->first);
  roots.known.erase(idlest);
  return true;
}

bool RootTree::insert_root(Roots& roots, const layout::Name& entry, uid_t owner, bool is_torchs) {
  const auto now = std::chrono::steady_clock::now();
  const bool is_new = !roots.known.contains(entry.root);
  if (is_new && roots.is_full(owner) && now >= roots.next_prune) {
    std::erase_if(roots.known, [this](const auto& one) { return !nodes_.walk(one.first).missing.empty(); });
    if (roots.is_full(owner) && !let_idle_root_go(roots, owner)) roots.next_prune = now + kPrunePause;
  }
  if (is_new && roots.is_full(owner)) return false;
  Root& root = roots.known.try_emplace(entry.root, Root{owner, false, now}).first->second;
  root.is_torchs = root.is_torchs || is_torchs;
  return true;
}

std::vector<std::string> RootTree::take_left_roots() {
  const bool none = roots_.read([](const Roots& roots) { return roots.left.empty(); });
  if (none) return {};
  return roots_.write([](Roots& roots) { return std::exchange(roots.left, {}); });
}

bool RootTree::admit(const layout::Name& entry) {
  if (entry.root.empty()) return true;
  const bool proves = layout::proves_root(entry);
  const auto known = roots_.read([&](const Roots& roots) -> std::optional<bool> {
    const auto found = roots.known.find(entry.root);
    if (found != roots.known.end()) {
      std::atomic_ref(found->second.used).store(std::chrono::steady_clock::now(), std::memory_order_relaxed);
      return !proves || found->second.is_torchs ? std::optional(true) : std::nullopt;
    }
    const bool stays_full = roots.known.size() >= kMostRoots && std::chrono::steady_clock::now() < roots.next_prune;
    return stays_full ? std::optional(false) : std::nullopt;
  });
  if (known) return *known;
  const uid_t owner = owner_of(entry.root).value_or(0);
  const bool is_torchs = proves || is_torchs_on_disk(entry.root);
  return roots_.write([&](Roots& roots) { return insert_root(roots, entry, owner, is_torchs); });
}

/// Says whether the disk has what torch asks for first: then somebody has asked for it, perhaps in an earlier mount.
bool RootTree::is_torchs_on_disk(const std::string& root) const {
  return std::ranges::any_of(std::array{"fxgraph", "aotautograd"}, [&](const char* name) {
    const auto status = disk_.stat(LocalTree::view(join(root, name)));
    return status && *status;
  });
}

bool RootTree::lists_cluster(const layout::Name& entry) const {
  if (entry.root.empty()) return true;
  // What is true of the mountpoint is so of a job's part of it. And torch looks for what an earlier run has learned
  // before it asks for a graph (torch/_dynamo/pgo.py: get_code_state); only a job has a branch.
  const std::string root = root_of_branch(entry.root);
  if (root.empty() || (root != entry.root && entry.path == "dynamo")) return true;
  return roots_.read([&](const Roots& roots) {
    const auto found = roots.known.find(entry.root);
    return found != roots.known.end() && (found->second.is_torchs || !layout::is_ambiguous(entry));
  });
}

bool RootTree::will_list_cluster(const layout::Name& entry) const {
  if (lists_cluster(entry) || layout::proves_root(entry)) return true;
  const bool is_root = roots_.read([&](const Roots& roots) { return roots.known.contains(entry.root); });
  return !is_root && (!layout::is_ambiguous(entry) || is_torchs_on_disk(entry.root));
}

std::vector<std::string> RootTree::roots() const {
  return roots_.read([](const Roots& roots) {
    std::vector<std::string> paths;
    for (const auto& [path, root] : roots.known) paths.push_back(path);
    return paths;
  });
}

std::optional<uid_t> RootTree::owner_of(const std::string& root) const {
  const auto status = disk_.stat(LocalTree::view(root));
  if (!status || !*status) return std::nullopt;
  const auto access = access_of_root({std::string(), root});  // of a branch the root's
  return access ? std::optional(access->uid) : std::nullopt;
}

bool RootTree::has_roots_at(const std::string& path) const {
  return roots_.read([&](const Roots& roots) {
    if (roots.known.contains(path)) return true;
    const auto below = roots.known.lower_bound(path + "/");
    return below != roots.known.end() && below->first.starts_with(path + "/");
  });
}

/// Takes the roots at and below a directory out, with what they are called in it.
std::map<std::string, RootTree::Root> RootTree::take_roots(Roots& roots, const std::string& directory) {
  std::map<std::string, Root> taken;
  for (auto one = roots.known.lower_bound(directory); one != roots.known.end() && one->first.starts_with(directory);) {
    const std::string rest = one->first.substr(directory.size());
    const bool inside = rest.empty() || rest.front() == '/';
    if (inside) taken.emplace(rest, one->second);
    one = inside ? roots.known.erase(one) : std::next(one);
  }
  return taken;
}

void RootTree::move_roots(const std::string& from, const std::string& to) {
  roots_.write([&](Roots& roots) {
    for (auto& [rest, root] : take_roots(roots, from)) roots.known[to + rest] = root;
  });
  (void)admit(layout::name_of(to));
}

void RootTree::exchange_roots(const std::string& one, const std::string& other) {
  roots_.write([&](Roots& roots) {
    const auto first = take_roots(roots, one);
    const auto second = take_roots(roots, other);
    for (const auto& [rest, root] : first) roots.known[other + rest] = root;
    for (const auto& [rest, root] : second) roots.known[one + rest] = root;
  });
  (void)admit(layout::name_of(one));
  (void)admit(layout::name_of(other));
}

}  // namespace inductorfs::vfs
