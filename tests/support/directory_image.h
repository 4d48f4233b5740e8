// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <utility>

namespace inductorfs::testing {

/// All that lies below a directory, to compare with a later look: for each path its kind, mode and owner, of regular
/// files also which inode it is, when it was written and its bytes.
[[nodiscard]] inline std::map<std::string, std::string> image_of(const std::string& directory) {
  constexpr size_t kShown = 1024;  // of more bytes the hash, or a difference could not be read
  std::map<std::string, std::string> image;
  for (const auto& item : std::filesystem::recursive_directory_iterator(directory)) {
    struct stat info {};
    if (::lstat(item.path().c_str(), &info) != 0) continue;  // then it is missing from the image, which tells
    std::string told = std::to_string(info.st_mode) + " of " + std::to_string(info.st_uid);
    if (S_ISREG(info.st_mode)) {
      std::ifstream stream(item.path(), std::ios::binary);
      const std::string bytes(std::istreambuf_iterator<char>(stream), {});
      const size_t hash = std::hash<std::string>()(bytes);
      told += " inode " + std::to_string(info.st_ino) + " at " + std::to_string(info.st_mtim.tv_sec) + "." +
              std::to_string(info.st_mtim.tv_nsec) + ": ";
      told += bytes.size() <= kShown ? bytes : std::to_string(bytes.size()) + " bytes, " + std::to_string(hash);
    } else if (S_ISLNK(info.st_mode)) {
      told += " to " + std::filesystem::read_symlink(item.path()).string();
    }
    image[item.path().lexically_relative(directory).string()] = std::move(told);
  }
  return image;
}

}  // namespace inductorfs::testing
