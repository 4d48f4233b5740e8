// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "inductorfs/base/mount_table.h"

/// Searches of the mount table that the commands need.
namespace inductorfs::places {

/// Returns the mount that `path` lies in.
[[nodiscard]] const MountEntry* find_mount_of(const std::vector<MountEntry>& table, std::string_view path);
/// Returns the inductorfs mount whose file system `bind` shows a part of, or nullptr when it is no longer mounted.
[[nodiscard]] const MountEntry* find_main_mount(const std::vector<MountEntry>& table, const MountEntry& bind);

}  // namespace inductorfs::places
