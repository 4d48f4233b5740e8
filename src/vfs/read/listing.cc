// SPDX-License-Identifier: Apache-2.0
#include "vfs/read/listing.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>

#include "vfs/tree/paths.h"

namespace inductorfs::vfs {
namespace {

constexpr uint64_t kFirstCookie = 3;  // 1 and 2 are "." and ".."

/// FNV-1a, without the sign bit and the cookies of "." and "..": the same in every worker.
uint64_t cookie_of(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return std::max(hash >> 1, kFirstCookie);
}

std::string names_of(const std::vector<std::string>& branches) {
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

std::map<uint64_t, Listing::Item>::const_iterator Listing::find(std::string_view name) const {
  uint64_t cookie = cookie_of(name);
  auto at = by_cookie.find(cookie);
  while (at != by_cookie.end() && at->second.name != name) at = by_cookie.find(++cookie);
  return at;
}

/// The branches whose names a program sees in this directory, too.
std::vector<std::string> Listings::branches_shown(const std::string& path, const Caller& caller) {
  if (!branches_.are_on() || !environment_in(path).empty()) return {};
  return branches_.seen_by(path, caller);
}

std::string Listings::made_for(const std::string& path, const Caller& caller) {
  return names_of(branches_shown(path, caller));
}

Result<void> Listings::renew_listing(const NodePtr& node, const std::string& path,
                                     const std::vector<std::string>& branches) {
  Items items;
  INDUCTORFS_TRY(add_names(items, node, path));
  for (const auto& branch : branches) {
    const auto directory = lookup_.pin_path(branch);
    if (!directory) continue;  // it goes just now
    // The path may be another user's by now.
    const bool belongs = moves_.read(
        [&](const Moves&) { return nodes_.path_of(*node) == path && nodes_.path_of(**directory) == branch; });
    const auto added = belongs ? add_names(items, *directory, branch) : Result<void>{};
    tree_.unpin(*directory);
    INDUCTORFS_TRY(added);
  }
  node->listing.with([&](Listing& listing) {
    renew(listing, items);
    listing.made_for = names_of(branches);
  });
  return {};
}

Result<void> Listings::add_names(Items& items, const NodePtr& node, const std::string& path) {
  INDUCTORFS_TRY_ASSIGN(const auto local, tree_.list_in_view(*node));
  for (const auto& item : local) {
    if (!is_branch_name(item.name))
      items.try_emplace(item.name, Listing::Item{item.name, item.inode_number, item.type});
  }
  std::vector<std::string> entries;
  for (auto& item : shown_.in(node, path)) {
    if (!item.entry.empty() && item.type == S_IFREG) entries.push_back(std::move(item.entry));
    items.try_emplace(item.name, Listing::Item{item.name, inode_number_of(join(path, item.name)), item.type});
  }
  const auto is_of_set = [](const std::string& entry) { return is_kernel_file(entry); };
  if (node->key && std::ranges::none_of(entries, is_of_set)) {
    node->key->state.with([&](const KeyState& state) {
      const auto* set = state.shown_to_all();
      for (const auto& name : set == nullptr ? std::set<std::string>() : set->names()) {
        if (layout::is_group_file(name)) continue;
        items.try_emplace(name, Listing::Item{name, inode_number_of(join(path, name)), S_IFREG});
      }
    });
  }
  if (layout::is_candidate_directory(path)) nodes_.set_shown(node, std::move(entries));
  return {};
}

Result<void> Listings::read_directory(NodeId id, uint64_t cookie, const Caller& caller,
                                      const std::function<bool(const DirectoryItem&)>& take) {
  INDUCTORFS_TRY_ASSIGN(auto node, tree_.live(id));
  if (!node->is_directory()) return fail(ErrorCode::kNotDirectory);
  const auto path = nodes_.path_of(*node);
  if (!path) return {};  // deleted, and still somebody's working directory: empty
  if (const auto name = layout::name_of(*path); known_roots_.lists_cluster(name)) (void)scopes_.use(name.root);
  const auto branches = branches_shown(*path, caller);
  const bool known = node->listing.with(
      [&](const Listing& listing) { return listing.known && listing.made_for == names_of(branches); });
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
