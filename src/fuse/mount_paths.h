// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

#include "inductorfs/base/handle.h"

namespace inductorfs::fuse {

/// Says whether `path` is `directory` or lies below it, by the text alone.
[[nodiscard]] inline bool is_within(std::string_view path, std::string_view directory) {
  if (directory == "/") return path.starts_with('/');
  return path.starts_with(directory) && (path.size() == directory.size() || path[directory.size()] == '/');
}

/// Returns the path as the mount table spells it: without symbolic links and doubled slashes. It asks nothing of a
/// mount exactly at the path, so it does not hang on a dead one. Unchanged when it cannot be resolved.
[[nodiscard]] inline std::string resolved_mountpoint(const std::string& path) {
  std::string trimmed = path;
  // With a slash at its end realpath(3) asks the directory itself.
  while (trimmed.size() > 1 && trimmed.back() == '/') trimmed.pop_back();
  const Handle<char, std::free> real(::realpath(trimmed.c_str(), nullptr));
  return real ? std::string(real.get()) : trimmed;
}

}  // namespace inductorfs::fuse
