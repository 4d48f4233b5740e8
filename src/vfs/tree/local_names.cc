// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <climits>

#include "vfs/tree/local_tree.h"

/// The calls of LocalTree that do what a system call of a similar name does.
namespace inductorfs::vfs {
namespace {

Result<void> answer(int result, const char* call, const std::string& path) {
  return result == 0 ? Result<void>{} : fail_errno(call, path);
}

}  // namespace

Result<Fd> LocalTree::create_file(const std::string& path, mode_t mode) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  return open_at(at.fd(), at.name(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
}

Result<void> LocalTree::make_directory(const std::string& path, mode_t mode) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  return answer(::mkdirat(at.fd(), at.name(), mode), "mkdir", path);
}

Result<void> LocalTree::remove_directory(const std::string& path) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  return answer(::unlinkat(at.fd(), at.name(), AT_REMOVEDIR), "rmdir", path);
}

Result<void> LocalTree::make_node(const std::string& path, mode_t mode, dev_t device) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  return answer(::mknodat(at.fd(), at.name(), mode, device), "mknod", path);
}

Result<void> LocalTree::make_symlink(const std::string& target, const std::string& path) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  return answer(::symlinkat(target.c_str(), at.fd(), at.name()), "symlink", path);
}

Result<std::string> LocalTree::read_link(const std::string& path) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  std::string target(PATH_MAX, '\0');
  const ssize_t size = ::readlinkat(at.fd(), at.name(), target.data(), target.size());
  if (size < 0) return fail_errno("readlink", path);
  target.resize(static_cast<size_t>(size));
  return target;
}

Result<void> LocalTree::set_owner(const std::string& path, uid_t uid, gid_t gid) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  return answer(::fchownat(at.fd(), at.name(), uid, gid, AT_SYMLINK_NOFOLLOW), "chown", path);
}

/// fchmodat(2) follows a link; the file that is open does not change.
Result<void> LocalTree::set_mode(const std::string& path, mode_t mode) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  INDUCTORFS_TRY_ASSIGN(const auto itself, open_at(at.fd(), at.name(), O_PATH | O_NOFOLLOW));
  return answer(::chmod(proc_path(itself.get()).c_str(), mode), "chmod", path);
}

Result<void> LocalTree::set_times(const std::string& path, const struct timespec* times) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  return answer(::utimensat(at.fd(), at.name(), times, AT_SYMLINK_NOFOLLOW), "utimens", path);
}

Result<std::string> LocalTree::xattr(const std::string& path, const std::string& name) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  std::string value(kXattrLimit, '\0');
  const ssize_t size = ::lgetxattr(at.in_proc().c_str(), name.c_str(), value.data(), value.size());
  if (size < 0) return fail_errno("getxattr", name);
  value.resize(static_cast<size_t>(size));
  return value;
}

Result<std::vector<std::string>> LocalTree::xattr_names(const std::string& path) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  std::string text(kXattrLimit, '\0');
  const ssize_t size = ::llistxattr(at.in_proc().c_str(), text.data(), text.size());
  if (size < 0) return fail_errno("listxattr", path);
  std::vector<std::string> names;
  for (size_t begin = 0; begin < static_cast<size_t>(size); begin += names.back().size() + 1) {
    names.emplace_back(text.c_str() + begin);
  }
  return names;
}

Result<void> LocalTree::set_xattr(const std::string& path, const std::string& name,
                                  std::optional<std::string_view> value, int flags) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  const std::string whole = at.in_proc();
  if (!value) return answer(::lremovexattr(whole.c_str(), name.c_str()), "removexattr", name);
  return answer(::lsetxattr(whole.c_str(), name.c_str(), value->data(), value->size(), flags), "setxattr", name);
}

Result<struct statvfs> LocalTree::statistics() const {
  struct statvfs result {};
  if (::fstatvfs(root_.get(), &result) != 0) return fail_errno("statvfs");
  return result;
}

Result<void> LocalTree::sync() const { return answer(::syncfs(root_.get()), "syncfs", {}); }

}  // namespace inductorfs::vfs
