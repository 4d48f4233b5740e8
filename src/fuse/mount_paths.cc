// SPDX-License-Identifier: Apache-2.0
#include "mount_paths.h"

#include <cstdlib>

#include "inductorfs/base/handle.h"

namespace inductorfs::fuse {

bool is_within(std::string_view path, std::string_view directory) {
  if (directory == "/") return path.starts_with('/');
  return path.starts_with(directory) && (path.size() == directory.size() || path[directory.size()] == '/');
}

std::string resolved_mountpoint(const std::string& path) {
  std::string trimmed = path;
  // With a slash at its end realpath(3) asks the directory itself.
  while (trimmed.size() > 1 && trimmed.back() == '/') trimmed.pop_back();
  const Handle<char, std::free> real(::realpath(trimmed.c_str(), nullptr));
  return real ? std::string(real.get()) : trimmed;
}

}  // namespace inductorfs::fuse
