// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace inductorfs::fuse {

/// The operations that the kernel can ask for. The name is that of the counter, "fuse.<name>".
enum class Operation : size_t {
  kLookup,
  kForget,
  kGetattr,
  kSetattr,
  kReadlink,
  kMknod,
  kMkdir,
  kUnlink,
  kRmdir,
  kSymlink,
  kRename,
  kLink,
  kOpen,
  kRead,
  kWrite,
  kFlush,
  kRelease,
  kFsync,
  kOpendir,
  kReaddir,
  kReleasedir,
  kFsyncdir,
  kStatfs,
  kSetxattr,
  kGetxattr,
  kListxattr,
  kRemovexattr,
  kCreate,
  kIoctl,
  kFallocate,
  kCopyFileRange,
};

inline constexpr std::array<std::string_view, 31> kOperationNames = {
    "lookup",   "forget",    "getattr",     "setattr", "readlink",   "mknod",     "mkdir",          "unlink",
    "rmdir",    "symlink",   "rename",      "link",    "open",       "read",      "write",          "flush",
    "release",  "fsync",     "opendir",     "readdir", "releasedir", "fsyncdir",  "statfs",         "setxattr",
    "getxattr", "listxattr", "removexattr", "create",  "ioctl",      "fallocate", "copy_file_range"};
static_assert(static_cast<size_t>(Operation::kCopyFileRange) + 1 == kOperationNames.size());

[[nodiscard]] constexpr std::string_view name_of(Operation operation) {
  return kOperationNames[static_cast<size_t>(operation)];
}

}  // namespace inductorfs::fuse
