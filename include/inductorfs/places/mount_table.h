// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "inductorfs/base/mount_table.h"

/// Mounts as the commands look for them.
namespace inductorfs::places {

/// The mount that `path` lies in.
[[nodiscard]] const MountEntry* find_mount_of(const std::vector<MountEntry>& table, std::string_view path);
/// The mount of ours whose file system `bind` shows a part of; null when it is not mounted any more.
[[nodiscard]] const MountEntry* find_main_mount(const std::vector<MountEntry>& table, const MountEntry& bind);

}  // namespace inductorfs::places
