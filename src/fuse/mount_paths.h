// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace inductorfs::fuse {

/// Says whether `path` is `directory` or lies below it, by the text alone.
[[nodiscard]] bool is_within(std::string_view path, std::string_view directory);
/// Returns the path as the mount table spells it: without symbolic links and doubled slashes. It asks nothing of a
/// mount exactly at the path, so it does not hang on a dead one. Unchanged when it cannot be resolved.
[[nodiscard]] std::string resolved_mountpoint(const std::string& path);

}  // namespace inductorfs::fuse
