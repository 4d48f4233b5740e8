// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/mount_paths.h"

#include <algorithm>
#include <set>

namespace inductorfs {
namespace {

/// What the kernel writes behind the path of a directory that has been removed, or that it has dropped.
constexpr std::string_view kDeleted = "//deleted";

bool leads_to(std::string_view above, std::string_view path) {
  if (above == "/") return path.starts_with('/');
  return path.starts_with(above) && (path.size() == above.size() || path[above.size()] == '/');
}

/// The mount that a path leads to: from mount to mount, as the kernel walks. nullptr: none that is in the list.
const MountEntry* mount_of(const std::vector<MountEntry>& table, const std::set<uint64_t>& ids, std::string_view path) {
  const MountEntry* current = nullptr;
  for (size_t steps = 0; steps <= table.size(); ++steps) {
    const MountEntry* next = nullptr;
    for (const MountEntry& entry : table) {
      const bool is_first = entry.parent == entry.id || !ids.contains(entry.parent);
      const bool is_on_current = current == nullptr ? is_first : !is_first && entry.parent == current->id;
      if (!is_on_current || !leads_to(entry.mount_point, path)) continue;
      // The walk comes to the shortest first. Of two at one path the later one covers the other.
      if (next == nullptr || entry.mount_point.size() <= next->mount_point.size()) next = &entry;
    }
    if (next == nullptr) return current;
    current = next;
  }
  return nullptr;
}

std::string without_slashes(std::string_view root) {
  root.remove_prefix(std::min(root.find_first_not_of('/'), root.size()));
  return std::string(root);
}

}  // namespace

MountPaths::MountPaths(const std::vector<MountEntry>& table, std::string_view device) {
  std::set<uint64_t> ids;
  for (const MountEntry& entry : table) ids.insert(entry.id);
  for (const MountEntry& entry : table) {
    if (entry.device != device || entry.root.ends_with(kDeleted) || entry.mount_point.ends_with(kDeleted)) continue;
    if (mount_of(table, ids, entry.mount_point) != &entry) continue;
    shown_.push_back({without_slashes(entry.root), entry.mount_point});
  }
  std::stable_sort(shown_.begin(), shown_.end(),
                   [](const Shown& one, const Shown& other) { return one.root.size() > other.root.size(); });
  for (const MountEntry& entry : table) {
    const bool is_below = std::any_of(shown_.begin(), shown_.end(), [&](const Shown& shown) {
      return entry.mount_point != shown.at && leads_to(shown.at, entry.mount_point);
    });
    if (is_below) covers_.push_back(entry.mount_point);
  }
}

bool MountPaths::is_covered(const Shown& shown, std::string_view path) const {
  return std::any_of(covers_.begin(), covers_.end(), [&](const std::string& cover) {
    return cover.size() > shown.at.size() && leads_to(shown.at, cover) && leads_to(cover, path);
  });
}

std::optional<std::string> MountPaths::path_of(std::string_view path, std::string_view preferred) const {
  std::optional<std::string> first;
  for (const Shown& shown : shown_) {
    if (!shown.root.empty() && !leads_to(shown.root, path)) continue;
    std::string_view rest = path.substr(shown.root.size());
    rest.remove_prefix(std::min(rest.find_first_not_of('/'), rest.size()));
    std::string seen = shown.at;
    if (!rest.empty()) seen.append(seen.ends_with('/') ? "" : "/").append(rest);
    if (is_covered(shown, seen)) continue;
    if (seen == preferred) return seen;
    if (!first) first = std::move(seen);
  }
  return first;
}

}  // namespace inductorfs
