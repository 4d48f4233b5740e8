// SPDX-License-Identifier: Apache-2.0
#include "vfs/tree/known_roots.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <iterator>
#include <set>
#include <utility>

#include "vfs/tree/branch_paths.h"

namespace inductorfs::vfs {
namespace {

constexpr std::chrono::seconds kPrunePause{1};
/// A root that was asked for later than this has a job, which would only bring it back.
constexpr std::chrono::seconds kIdle{1};

}  // namespace

bool KnownRoots::Roots::is_full(uid_t owner) const {
  if (known.size() >= kMost) return true;
  return std::count_if(known.begin(), known.end(), [owner](const auto& one) { return one.second.owner == owner; }) >=
         static_cast<ptrdiff_t>(kMostOfOne);
}

/// Makes room for a root of this owner: the one that was idle longest goes, of the same owner where that one has as
/// many as one may, else of whoever has most. A warm job of it asks the kernel alone, and brings it back with its next
/// miss.
bool KnownRoots::let_idle_go(Roots& roots, uid_t owner) {
  std::map<uid_t, size_t> counts;
  for (const auto& [path, root] : roots.known) ++counts[root.owner];
  const bool of_same = counts[owner] >= kMostOfOne;
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

bool KnownRoots::insert(Roots& roots, const layout::Name& entry, uid_t owner, bool is_torchs) {
  const auto now = std::chrono::steady_clock::now();
  const bool is_new = !roots.known.contains(entry.root);
  if (is_new && roots.is_full(owner) && now >= roots.next_prune) {
    std::erase_if(roots.known, [this](const auto& one) { return !nodes_.find(one.first); });
    if (roots.is_full(owner) && !let_idle_go(roots, owner)) roots.next_prune = now + kPrunePause;
  }
  if (is_new && roots.is_full(owner)) return false;
  Root& root = roots.known.try_emplace(entry.root, Root{owner, false, now}).first->second;
  root.is_torchs = root.is_torchs || is_torchs;
  return true;
}

std::vector<std::string> KnownRoots::take_left() {
  return roots_.write([](Roots& roots) { return std::exchange(roots.left, {}); });
}

bool KnownRoots::admit(const layout::Name& entry) {
  if (entry.root.empty()) return true;
  const bool proves = layout::proves_root(entry);
  const auto known = roots_.read([&](const Roots& roots) -> std::optional<bool> {
    const auto found = roots.known.find(entry.root);
    if (found != roots.known.end()) {
      std::atomic_ref(found->second.used).store(std::chrono::steady_clock::now(), std::memory_order_relaxed);
      return !proves || found->second.is_torchs ? std::optional(true) : std::nullopt;
    }
    const bool stays_full = roots.known.size() >= kMost && std::chrono::steady_clock::now() < roots.next_prune;
    return stays_full ? std::optional(false) : std::nullopt;
  });
  if (known) return *known;
  const uid_t owner = owner_of(entry.root).value_or(0);
  const bool is_torchs = proves || is_torchs_on_disk(entry.root);
  return roots_.write([&](Roots& roots) { return insert(roots, entry, owner, is_torchs); });
}

/// Says whether the disk has what torch asks for first: then somebody has asked for it, perhaps in an earlier mount.
bool KnownRoots::is_torchs_on_disk(const std::string& root) const {
  return std::ranges::any_of(std::array{"fxgraph", "aotautograd"}, [&](const char* name) {
    const auto status = disk_.stat(LocalTree::view(join(root, name)));
    return status && *status;
  });
}

bool KnownRoots::lists_cluster(const layout::Name& entry) const {
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

bool KnownRoots::will_list_cluster(const layout::Name& entry) const {
  if (lists_cluster(entry) || layout::proves_root(entry)) return true;
  const bool is_root = roots_.read([&](const Roots& roots) { return roots.known.contains(entry.root); });
  return !is_root && (!layout::is_ambiguous(entry) || is_torchs_on_disk(entry.root));
}

std::vector<std::string> KnownRoots::paths() const {
  return roots_.read([](const Roots& roots) {
    std::vector<std::string> paths;
    for (const auto& [path, root] : roots.known) paths.push_back(path);
    return paths;
  });
}

/// From the disk each time, so that a chmod of the root counts at once for what the kernel asks about.
std::optional<RootAccess> KnownRoots::access_of(const layout::Name& entry) const {
  const auto status = disk_.stat(LocalTree::view(root_of_branch(entry.root)));
  if (!status || !*status) return std::nullopt;
  return RootAccess{(*status)->st_uid, (*status)->st_gid, (*status)->st_mode & 07777};
}

RootAccess KnownRoots::access_of_entries(const layout::Name& entry) const {
  const RootAccess mountpoint{options_.owner_uid, options_.owner_gid, options_.root_mode & 07777};
  return root_of_branch(entry.root).empty() ? mountpoint : access_of(entry).value_or(mountpoint);
}

std::optional<uid_t> KnownRoots::owner_of(const std::string& root) const {
  const auto status = disk_.stat(LocalTree::view(root));
  if (!status || !*status) return std::nullopt;
  const auto access = access_of({std::string(), root});  // of a branch the root's
  return access ? std::optional(access->uid) : std::nullopt;
}

bool KnownRoots::has_any_at(const std::string& path) const {
  return roots_.read([&](const Roots& roots) {
    if (roots.known.contains(path)) return true;
    const auto below = roots.known.lower_bound(path + "/");
    return below != roots.known.end() && below->first.starts_with(path + "/");
  });
}

/// Takes the roots at and below a directory out, with what they are called in it.
std::map<std::string, KnownRoots::Root> KnownRoots::take_below(Roots& roots, const std::string& directory) {
  std::map<std::string, Root> taken;
  for (auto one = roots.known.lower_bound(directory); one != roots.known.end() && one->first.starts_with(directory);) {
    const std::string rest = one->first.substr(directory.size());
    const bool inside = rest.empty() || rest.front() == '/';
    if (inside) taken.emplace(rest, one->second);
    one = inside ? roots.known.erase(one) : std::next(one);
  }
  return taken;
}

void KnownRoots::move(const std::string& from, const std::string& to) {
  roots_.write([&](Roots& roots) {
    for (auto& [rest, root] : take_below(roots, from)) roots.known[to + rest] = root;
  });
  (void)admit(layout::name_of(to));
}

void KnownRoots::exchange(const std::string& one, const std::string& other) {
  roots_.write([&](Roots& roots) {
    const auto first = take_below(roots, one);
    const auto second = take_below(roots, other);
    for (const auto& [rest, root] : first) roots.known[other + rest] = root;
    for (const auto& [rest, root] : second) roots.known[one + rest] = root;
  });
  (void)admit(layout::name_of(one));
  (void)admit(layout::name_of(other));
}

std::vector<std::string> KnownRoots::local_paths_of(const layout::Name& entry) const {
  std::vector<std::string> all = local_paths_in_root(entry);
  if (!entry.root.empty()) return all;
  for (auto& root : paths()) {
    auto more = local_paths_in_root({entry.path, std::move(root)});
    all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }
  return all;
}

std::vector<std::string> KnownRoots::local_paths_in_root(const layout::Name& entry) const {
  // The kernel keeps no absence of a name that stands in a root itself, but for the mountpoint (Lookup).
  const auto is_known = [this, &root = entry.root](std::string_view name) {
    return nodes_.find(join(root, name)) != nullptr;
  };
  const bool everything = entry.root.empty();
  const std::string prefix = "triton/" + std::string(layout::kAnyDevice) + "/";
  if (!entry.path.starts_with(prefix)) {
    const bool known = everything || is_known(entry.path.substr(0, entry.path.find('/')));
    return known ? std::vector{join(entry.root, entry.path)} : std::vector<std::string>();
  }
  // One entry shows in every device's directory.
  std::vector<std::string> paths;
  const std::string rest = entry.path.substr(prefix.size());
  const std::string triton = join(entry.root, "triton");
  const NodePtr known = nodes_.find(triton);
  std::set<std::string> devices;
  if (everything || known) devices.insert("0");
  if (known) {
    for (const auto& [name, node] : nodes_.children(known)) {
      if (layout::is_device_name(name)) devices.insert(name);
    }
  }
  for (const auto& device : devices) paths.push_back(join(join(triton, device), rest));
  const std::string_view key = std::string_view(rest).substr(0, rest.find('/'));
  for (const char* directory : {"", "triton"}) {
    if (is_known(join(directory, key))) paths.push_back(join(entry.root, join(directory, rest)));
  }
  return paths;
}

void KnownRoots::each_key_directory(const std::function<void(const NodePtr&)>& use) const {
  const auto use_children = [&](const NodePtr& directory) {
    for (const auto& [name, child] : nodes_.children(directory)) {
      if (child->key) use(child);
    }
  };
  auto all = paths();
  all.emplace_back();
  for (const auto& root : all) {
    if (const NodePtr known = nodes_.find(root)) use_children(known);
    const NodePtr triton = nodes_.find(join(root, "triton"));
    if (!triton) continue;
    use_children(triton);
    for (const auto& [device, node] : nodes_.children(triton)) use_children(node);
  }
}

}  // namespace inductorfs::vfs
