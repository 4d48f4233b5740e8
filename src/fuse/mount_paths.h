// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/mount_table.h"

namespace inductorfs::fuse {

/// Returns the topmost mount exactly at `mountpoint`.
[[nodiscard]] std::optional<MountEntry> find_mount(const std::vector<MountEntry>& table, std::string_view mountpoint);
/// Says whether `path` is `directory` or lies below it, by the text alone.
[[nodiscard]] bool is_within(std::string_view path, std::string_view directory);
/// Returns the path as the mount table spells it: without symbolic links and doubled slashes. It asks nothing of a
/// mount exactly at the path, so it does not hang on a dead one. Unchanged when it cannot be resolved.
[[nodiscard]] std::string resolved_mountpoint(const std::string& path);

}  // namespace inductorfs::fuse
