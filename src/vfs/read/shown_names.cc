// SPDX-License-Identifier: Apache-2.0
#include "vfs/read/shown_names.h"

#include <algorithm>

#include "vfs/tree/branch_paths.h"
#include "vfs/tree/paths.h"

namespace inductorfs::vfs {
namespace {

const std::string kDevices = "triton/" + std::string(layout::kAnyDevice);

bool is_local(const Node& node) {
  return node.content.with([](const Content& content) { return content.backing == Backing::kLocal; });
}

}  // namespace

/// Says whether a set is pending in the directory, or in a known one below it.
bool ShownNames::has_pending(const NodePtr& directory) const {
  if (directory->key) return directory->key->state.with([](const KeyState& state) { return !state.writers.empty(); });
  const auto children = nodes_.children(directory);
  return std::ranges::any_of(
      children, [&](const auto& child) { return child.second->is_directory() && has_pending(child.second); });
}

/// What a root below the mountpoint shows of the cluster is listed once somebody has looked it up.
bool ShownNames::lists_all(const layout::Name& name, const std::string& path) const {
  return known_roots_.lists_cluster(name) && (path.empty() || layout::is_in_a_root(path));
}

std::vector<ShownNames::Item> ShownNames::in(const NodePtr& directory, const std::string& path) const {
  std::vector<Item> items;
  const auto entry = layout::name_of(path);
  const bool is_key = directory && directory->key;
  if (is_key) {
    for (const auto& known : ClusterSets::set_at(*directory))
      items.push_back({last_component(known.entry.path), S_IFREG, {}});
    for (const auto& known : sets_.offered(*directory, entry))
      items.push_back({last_component(known.entry.path), S_IFREG, known.entry.path});
  } else if (directory && entry.path.starts_with("triton")) {
    // The cluster may have lost what a key directory still shows, and a set may be pending in one that is not on the
    // disk.
    for (const auto& [name, child] : nodes_.children(directory)) {
      const bool is_shown =
          child->is_directory() && !is_branch_name(name) && (sets_.shown_at(child) || has_pending(child));
      if (is_shown) items.push_back({name, S_IFDIR, {}});
    }
  }
  if (directory && !lists_all(entry, path)) {
    for (const auto& [name, child] : nodes_.children(directory)) {
      if (!is_branch_name(name) && is_known(child, join(path, name))) items.push_back({name, child->type, {}});
    }
  }
  const bool lists = known_roots_.lists_cluster(entry);
  for (const auto& child : lists ? catalog_.list(entry) : std::vector<catalog::Child>{}) {
    const std::string below = join(entry.path, child.name);
    if (is_key && is_kernel_file(below)) continue;
    const bool is_directory = child.directory || form_of(below) == layout::Form::kDirectory;
    // Device directories have no name in the cluster: the first one stands for all that were not used here yet.
    items.push_back({below == kDevices ? "0" : child.name, static_cast<mode_t>(is_directory ? S_IFDIR : S_IFREG),
                     child.directory ? std::string() : below});
  }
  return items;
}

bool ShownNames::any_at_or_below(const NodePtr& directory, const std::string& path) const {
  if (!in(directory, path).empty()) return true;
  return directory && (!lists_all(layout::name_of(path), path) || known_roots_.has_any_at(path)) &&
         any_known(directory, path);
}

/// A directory that the kernel knows may have nothing any more (Lookup::show_listed).
bool ShownNames::is_known(const NodePtr& node, const std::string& path) const {
  if (is_local(*node)) return false;
  return !node->is_directory() || catalog_.has_directory(layout::name_of(path)) || !in(node, path).empty();
}

bool ShownNames::any_known(const NodePtr& directory, const std::string& path) const {
  return std::ranges::any_of(nodes_.children(directory), [&](const auto& child) {
    const std::string below = join(path, child.first);
    return is_known(child.second, below) || (child.second->is_directory() && any_known(child.second, below));
  });
}

}  // namespace inductorfs::vfs
