// SPDX-License-Identifier: Apache-2.0
#include "vfs/read/listing.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>

#include "vfs/tree/paths.h"

namespace inductorfs::vfs {
namespace {

constexpr uint64_t kFirstCookie = 3;  // 1 and 2 are "." and ".."

const std::string kDevices = "triton/" + std::string(layout::kAnyDevice);

bool is_local(const Node& node) {
  return node.content.with([](const Content& content) { return content.backing == Backing::kLocal; });
}

uint64_t number_of(std::string_view path) { return std::hash<std::string_view>{}(path) | (1ULL << 63); }

/// FNV-1a, without the sign bit and the cookies of "." and "..": the same in every worker.
uint64_t cookie_of(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return std::max(hash >> 1, kFirstCookie);
}

std::string made_for(const std::vector<std::string>& branches) {
  std::string text;
  for (const auto& branch : branches) text += branch + "\n";
  return text;
}

void renew(Listing& listing, const std::map<std::string, Listing::Item>& items) {
  listing.by_cookie.clear();
  for (const auto& [name, item] : items) {
    uint64_t cookie = cookie_of(name);
    while (!listing.by_cookie.try_emplace(cookie, item).second) ++cookie;  // two names in 2^63: in the order of names
  }
  listing.known = true;
}

}  // namespace

/// The branches whose names a program sees in this directory, too.
std::vector<std::string> Listings::branches_shown(const std::string& path, const Caller& caller) {
  if (!branches_.are_on() || !environment_in(path).empty()) return {};
  return branches_.seen_by(path, caller);
}

Result<void> Listings::renew_listing(const NodePtr& node, const std::string& path,
                                     const std::vector<std::string>& branches) {
  Items items;
  INDUCTORFS_TRY(add_names(items, node, path));
  for (const auto& branch : branches) {
    const auto directory = lookup_.pin_path(branch);
    if (!directory) continue;  // it goes just now
    const auto added = add_names(items, *directory, branch);
    tree_.unpin(*directory);
    INDUCTORFS_TRY(added);
  }
  node->listing.with([&](Listing& listing) {
    renew(listing, items);
    listing.made_for = made_for(branches);
  });
  return {};
}

Result<void> Listings::add_names(Items& items, const NodePtr& node, const std::string& path) {
  INDUCTORFS_TRY_ASSIGN(const auto local, tree_.list_in_view(path));
  for (const auto& item : local) {
    if (!is_branch_name(item.name))
      items.try_emplace(item.name, Listing::Item{item.name, item.inode_number, item.type});
  }
  const auto directory = layout::name_of(path);
  bool has_set = false;
  const auto add_shared = [&](const std::string& name, mode_t type) {
    items.try_emplace(name, Listing::Item{name, number_of(join(path, name)), type});
  };
  if (node->key) {
    node->key->state.with([&](const KeyState& state) {
      has_set = state.committed != KeyState::Committed::kNone;
      for (const auto& [name, known] : state.cluster) add_shared(name, S_IFREG);
    });
  } else if (directory.path.starts_with("triton")) {
    // The cluster may have lost what a key directory still shows.
    for (const auto& [name, child] : nodes_.children(node)) {
      if (child->is_directory() && sets_.shown_at(child)) add_shared(name, S_IFDIR);
    }
  }
  // What a root below the mountpoint shows of the cluster is listed once somebody has looked it up.
  const bool lists_all = tree_.lists_cluster(directory) && (path.empty() || layout::is_in_a_root(path));
  if (!lists_all) {
    for (const auto& [name, child] : nodes_.children(node)) {
      if (!is_local(*child)) add_shared(name, child->type);
    }
  }
  std::vector<std::string> shown;
  for (const auto& child : lists_all ? catalog_.list(directory) : std::vector<catalog::Child>{}) {
    const std::string entry_path = join(directory.path, child.name);
    if (has_set && is_kernel_file(entry_path)) continue;
    // Device directories have no name in the cluster: the first one stands for all that were not used here yet.
    const std::string name = entry_path == kDevices ? "0" : child.name;
    if (!child.directory) shown.push_back(entry_path);
    const bool is_directory = child.directory || form_of(entry_path) == layout::Form::kDirectory;
    add_shared(name, static_cast<mode_t>(is_directory ? S_IFDIR : S_IFREG));
  }
  if (layout::is_candidate_directory(path)) nodes_.set_shown(node, std::move(shown));
  return {};
}

Result<void> Listings::read_directory(NodeId id, uint64_t cookie, const Caller& caller,
                                      const std::function<bool(const DirectoryItem&)>& take) {
  INDUCTORFS_TRY_ASSIGN(auto node, tree_.live(id));
  if (!node->is_directory()) return fail(ErrorCode::kNotDirectory);
  const auto path = nodes_.path_of(*node);
  if (!path) return {};  // deleted, and still somebody's working directory: empty
  if (const auto name = layout::name_of(*path); tree_.lists_cluster(name)) (void)scopes_.use(name.root);
  const auto branches = branches_shown(*path, caller);
  const bool known = node->listing.with(
      [&](const Listing& listing) { return listing.known && listing.made_for == made_for(branches); });
  if (cookie == 0 || !known) INDUCTORFS_TRY(renew_listing(node, *path, branches));
  // The kernel shows what it keeps of a listing to every process.
  if (branches_.are_on() && !branches_.directories_for(*path).empty()) notifier_.wish_content_forgotten(id);
  if (cookie < 1 && !take({".", node->inode_number, S_IFDIR, 1})) return {};
  if (cookie < 2 && !take({"..", 0, S_IFDIR, 2})) return {};
  node->listing.with([&](const Listing& listing) {
    for (auto it = listing.by_cookie.upper_bound(cookie); it != listing.by_cookie.end(); ++it) {
      if (!take({it->second.name, it->second.inode_number, it->second.type, it->first})) break;
    }
  });
  return {};
}

}  // namespace inductorfs::vfs
