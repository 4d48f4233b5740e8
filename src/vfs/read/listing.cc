// SPDX-License-Identifier: Apache-2.0
#include "vfs/read/listing.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>

namespace inductorfs::vfs {
namespace {

using Items = std::map<std::string, Listing::Item>;

constexpr uint64_t kFirstCookie = 3;  // 1 and 2 are "." and ".."

uint64_t number_of(std::string_view path) { return std::hash<std::string_view>{}(path) | (1ULL << 63); }

/// FNV-1a, without the sign bit and the cookies of "." and "..": the same in every worker.
uint64_t cookie_of(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return std::max(hash >> 1, kFirstCookie);
}

void renew(Listing& listing, const Items& items) {
  listing.by_cookie.clear();
  for (const auto& [name, item] : items) {
    uint64_t cookie = cookie_of(name);
    while (!listing.by_cookie.try_emplace(cookie, item).second) ++cookie;  // two names in 2^63: in the order of names
  }
  listing.known = true;
}

}  // namespace

Result<void> Listings::renew_listing(const NodePtr& node, const std::string& path) {
  INDUCTORFS_TRY_ASSIGN(const auto local, tree_.list_in_view(path));
  Items items;
  for (const auto& item : local) items[item.name] = {item.name, item.inode_number, item.type};
  const std::string canonical = layout::canonical_path(path);
  bool has_set = false;
  const auto add_shared = [&](const std::string& name, mode_t type) {
    items.try_emplace(name, Listing::Item{name, number_of(path.empty() ? name : path + "/" + name), type});
  };
  if (node->key) {
    node->key->state.with([&](const KeyState& state) {
      has_set = state.committed != KeyState::Committed::kNone;
      for (const auto& [name, known] : state.cluster) add_shared(name, S_IFREG);
    });
  } else if (path.starts_with("triton")) {
    // The cluster may have lost what a key directory still shows.
    for (const auto& [name, child] : nodes_.children(node)) {
      if (child->is_directory() && sets_.shown_at(child)) add_shared(name, S_IFDIR);
    }
  }
  std::vector<std::string> shown;
  for (const auto& child : catalog_.list(canonical)) {
    const std::string child_path = path.empty() ? child.name : path + "/" + child.name;
    if (!child.directory) shown.push_back(canonical + "/" + child.name);
    if (has_set && layout::classify(child_path).family == layout::Family::kTritonKernel) continue;
    // Device directories have no name in the cluster: the first one stands for all that were not used here yet.
    const std::string name = child_path == "triton/@" ? "0" : child.name;
    add_shared(name, static_cast<mode_t>(child.directory ? S_IFDIR : S_IFREG));
  }
  if (layout::is_candidate_directory(path)) nodes_.set_shown(node, std::move(shown));
  node->listing.with([&](Listing& listing) { renew(listing, items); });
  return {};
}

Result<void> Listings::read_directory(NodeId id, uint64_t cookie,
                                      const std::function<bool(const DirectoryItem&)>& take) {
  INDUCTORFS_TRY_ASSIGN(auto node, tree_.live(id));
  if (!node->is_directory()) return fail(ErrorCode::kNotDirectory);
  const auto path = nodes_.path_of(*node);
  if (!path) return {};  // deleted, and still somebody's working directory: empty
  const bool known = node->listing.with([](const Listing& listing) { return listing.known; });
  if (cookie == 0 || !known) INDUCTORFS_TRY(renew_listing(node, *path));
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
