// SPDX-License-Identifier: Apache-2.0
#include "vfs/disk/held_parent.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "inductorfs/base/fail_point.h"

namespace inductorfs::vfs {
namespace {

constexpr int kDirectory = O_PATH | O_DIRECTORY | O_CLOEXEC;

/// Of a path without empty names, as those of the tree are.
Result<Fd> walk(int directory, const std::string& path) {
  Fd at;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string name = path.substr(begin, end - begin);
    if (name == "..") return fail(error_from_errno(EXDEV, "open", path));
    const int in = at ? at.get() : directory;
    Fd next(::openat(in, name.c_str(), kDirectory | O_NOFOLLOW));
    if (!next && errno == ENOTDIR) errno = ENOENT;
    if (!next) return fail_errno("open", path);
    at = std::move(next);
    begin = end + 1;
  }
  return at;
}

Result<Fd> open_beneath(int directory, const std::string& path) {
  open_how how{};
  how.flags = kDirectory;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  // Linux before 5.6, and filters of system calls that do not know it, as the worker's own.
  static std::atomic<bool> is_unknown{false};
  // For a test of what holds where this does not: the tree of the worker, Landlock and its user.
  if (fail_point_error("tree.unchecked")) return open_at(directory, path, kDirectory);
  if (is_unknown.load(std::memory_order_relaxed) || fail_point_error("tree.open_beneath")) return walk(directory, path);
  Fd found(static_cast<int>(::syscall(SYS_openat2, directory, path.c_str(), &how, sizeof how)));
  if (found) return found;
  if (errno == ENOSYS || errno == EPERM) {
    is_unknown.store(true, std::memory_order_relaxed);
    return walk(directory, path);
  }
  if (errno == ELOOP || errno == ENOTDIR) errno = ENOENT;
  return fail_errno("open", path);
}

}  // namespace

Result<HeldParent> HeldParent::of(int directory, std::string_view path) {
  const size_t slash = path.rfind('/');
  const bool is_deep = slash != std::string_view::npos;
  const std::string_view name = path.substr(is_deep ? slash + 1 : 0);
  if (name == ".." && !fail_point_error("tree.unchecked")) return fail(error_from_errno(EXDEV, "open", path));
  if (!is_deep) return HeldParent(directory, Fd(), name);
  INDUCTORFS_TRY_ASSIGN(auto parent, open_beneath(directory, std::string(path.substr(0, slash))));
  return HeldParent(directory, std::move(parent), name);
}

}  // namespace inductorfs::vfs
