// SPDX-License-Identifier: Apache-2.0
#include "vfs/write/node_places.h"

#include <sys/stat.h>

#include <optional>
#include <string_view>

#include "inductorfs/base/number.h"

namespace inductorfs::vfs {
namespace {

/// "pending/<node>-<process>-<start>/<name>".
struct PendingPlace {
  NodeId directory{};
  std::string name;
};
std::optional<PendingPlace> pending_place(std::string_view place) {
  const std::string prefix = LocalTree::in_folder(LocalTree::kPendingFolder, {});
  if (!place.starts_with(prefix)) return std::nullopt;
  place.remove_prefix(prefix.size());
  const size_t dash = place.find('-');
  const size_t slash = place.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos || slash < dash) return std::nullopt;
  const auto id = number_in<uint64_t>(place.substr(0, dash));
  if (!id) return std::nullopt;
  return PendingPlace{NodeId{*id}, std::string(place.substr(slash + 1))};
}

}  // namespace

/// The inode number of the node's file, if that is what lies there; 0: it is not.
uint64_t NodePlaces::inode_at(const std::string& place, const Node& node) const {
  const auto status = disk_.stat(place);
  if (!status || !*status || !S_ISREG((*status)->st_mode)) return 0;
  const auto is_it = [&] {
    if (node.local_inode == 0 || (*status)->st_ino == node.local_inode) return true;
    // A copy took its place, and the worker was killed before it could note that (LocalTree::unshare).
    return mark_of(disk_, place, kChangedMark) == std::to_string(node.local_inode);
  };
  return is_it() ? (*status)->st_ino : 0;
}

/// Where a local file is noted to be and is, and its inode number; of its names the first one that the disk knows it
/// by. Number 0: at none of them.
std::pair<std::string, uint64_t> NodePlaces::noted_place(const NodePtr& node) const {
  const std::string elsewhere = node->content.with([](const Content& content) { return content.elsewhere; });
  if (!elsewhere.empty()) return {elsewhere, inode_at(elsewhere, *node)};
  for (const auto& [parent_id, name] : nodes_.names_of(node)) {
    const NodePtr parent = nodes_.find(parent_id);
    const auto path = parent ? nodes_.path_of(*parent, name) : std::nullopt;
    if (!path) continue;
    // Of most files all that is asked of the disk.
    if (const uint64_t inode = inode_at(LocalTree::view(*path), *node); inode != 0)
      return {LocalTree::view(*path), inode};
  }
  return {};
}

/// Where a local file really is: the earlier worker may have been killed between a step on the disk and its note.
bool NodePlaces::find_place(const NodePtr& node) {
  const auto backing = node->content.with([](const Content& content) { return content.backing; });
  if (backing != Backing::kLocal) return true;
  if (const auto [place, inode] = noted_place(node); inode != 0) {
    lose_names(node, place);
    nodes_.remember_local(inode, node);
    return true;
  }
  const std::string orphan = LocalTree::orphan(node->id);
  const auto pending = node->content.with([](const Content& content) { return pending_place(content.elsewhere); });
  const NodePtr directory = pending ? nodes_.find(pending->directory) : nullptr;
  const auto above = directory ? nodes_.path_of(*directory) : std::nullopt;
  if (above && inode_at(LocalTree::view(join(*above, pending->name)), *node) != 0) {
    // In the middle of a set that was committed.
    node->content.with([&](Content& content) { tree_.become(node, content, Backing::kLocal, {}); });
    (void)nodes_.detach(directory, pending->name);
    (void)nodes_.add(directory, pending->name, node, 0);
    nodes_.remember_local(node->local_inode, node);
    return true;
  }
  if (inode_at(orphan, *node) != 0) {
    lose_names(node, {});
    node->content.with([&](Content& content) { tree_.become_orphan(*node, content, orphan); });
    nodes_.remember_local(node->local_inode, node);
    return true;
  }
  // Its request comes again and knows where it is, or it is gone.
  lose_names(node, {});
  return false;
}

/// Takes away the names under which the disk has another file, or all when the file is at no place.
void NodePlaces::lose_names(const NodePtr& node, const std::string& place) {
  for (const auto& [parent_id, name] : nodes_.names_of(node)) {
    const NodePtr parent = nodes_.find(parent_id);
    const auto path = parent ? nodes_.path_of(*parent, name) : std::nullopt;
    if (!path) continue;
    const std::string named = LocalTree::view(*path);
    if (!place.empty() && (named == place || inode_at(named, *node) != 0)) continue;
    (void)nodes_.detach(parent, name);
    notifier_.forget_name(parent_id, name);
  }
}

}  // namespace inductorfs::vfs
