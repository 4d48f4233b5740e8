// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/supervisor/program.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdio>
#include <string_view>
#include <utility>

namespace inductorfs::supervisor {
namespace {

constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;

bool is_own(uid_t owner) { return owner == 0 || owner == ::geteuid(); }

/// Every directory above; `path` is the kernel's, without links, and is cut on the way.
bool is_in_own_place(char* path, size_t size, bool has_more_names) {
  while (size > 1) {
    while (size > 1 && path[size - 1] != '/') --size;
    if (size > 1) --size;  // the slash, unless it is the root's
    path[size] = '\0';
    struct stat found {};
    if (::lstat(path, &found) != 0 || !S_ISDIR(found.st_mode) || !is_own(found.st_uid)) return false;
    // In a sticky one others may make a hard link to a program that is not theirs.
    if ((found.st_mode & kOthersWrite) != 0 && ((found.st_mode & S_ISVTX) == 0 || has_more_names)) return false;
  }
  return true;
}

}  // namespace

Fd open_own_program(int program) {
  std::array<char, 64> link{};
  std::array<char, PATH_MAX> path{};
  (void)std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", program);
  const ssize_t size = ::readlink(link.data(), path.data(), path.size() - 1);
  if (size <= 1 || path.front() != '/') return {};
  const std::string_view whole(path.data(), static_cast<size_t>(size));
  if (!whole.substr(whole.rfind('/') + 1).starts_with(kProgramName)) return {};
  Fd own(::open(path.data(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat given {};
  struct stat found {};
  struct statfs disk {};
  if (!own || ::fstat(program, &given) != 0 || ::fstat(own.get(), &found) != 0) return {};
  if (::fstatfs(own.get(), &disk) != 0 || disk.f_type == FUSE_SUPER_MAGIC) return {};  // its owners are a server's word
  const bool is_same = given.st_dev == found.st_dev && given.st_ino == found.st_ino;
  const bool is_ours = S_ISREG(found.st_mode) && is_own(found.st_uid) && (found.st_mode & kOthersWrite) == 0;
  return is_same && is_ours && is_in_own_place(path.data(), whole.size(), found.st_nlink > 1) ? std::move(own) : Fd();
}

}  // namespace inductorfs::supervisor
