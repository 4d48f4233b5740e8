// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/places/own_mounts.h"

#include "inductorfs/config/paths.h"

namespace inductorfs::places {

const MountEntry* find_mount_of(const std::vector<MountEntry>& table, std::string_view path) {
  const MountEntry* found = nullptr;
  for (const MountEntry& entry : table) {
    if (!config::is_at_or_below(path, entry.mount_point)) continue;
    if (found == nullptr || entry.mount_point.size() > found->mount_point.size()) found = &entry;
  }
  return found == nullptr ? nullptr : find_mount_at(table, found->mount_point);
}

const MountEntry* find_main_mount(const std::vector<MountEntry>& table, const MountEntry& bind) {
  for (const MountEntry& entry : table) {
    if (entry.is_ours() && entry.device == bind.device && entry.root == "/") return &entry;
  }
  return nullptr;
}

}  // namespace inductorfs::places
