// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <climits>

#include "vfs/disk/local_tree.h"

/// The calls of LocalTree that do what a system call of a similar name does.
namespace inductorfs::vfs {
namespace {

constexpr mode_t kFileMode = 0600;
constexpr mode_t kDirectoryMode = 0700;

Result<void> answer(int result, const char* call, const std::string& path) {
  return result == 0 ? Result<void>{} : fail_errno(call, path);
}

}  // namespace

Result<Fd> LocalTree::create_file(const std::string& path) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  return open_at(at.fd(), at.name(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, kFileMode);
}

Result<void> LocalTree::make_directory(const std::string& path) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  return answer(::mkdirat(at.fd(), at.name(), kDirectoryMode), "mkdir", path);
}

Result<void> LocalTree::remove_directory(const std::string& path) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  const Fd directory = losing(at);
  INDUCTORFS_TRY(answer(::unlinkat(at.fd(), at.name(), AT_REMOVEDIR), "rmdir", path));
  lost(directory, path);
  return {};
}

Result<void> LocalTree::make_special(const std::string& path, const FileOwner& owner, std::string_view target,
                                     UserCharges::NewFile* made_for) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  INDUCTORFS_TRY(note_specials(at.fd()));
  INDUCTORFS_TRY_ASSIGN(const auto file,
                        open_at(at.fd(), at.name(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, kFileMode));
  // In this order: what a killed worker leaves is no file of somebody's.
  Result<void> made = give(file.get(), owner, made_for);
  if (made) made = pwrite_full(file.get(), target, 0);
  if (!made) (void)unlink(path);  // the error that is reported came first
  return made;
}

Result<void> LocalTree::make_symlink(const std::string& target, const std::string& path) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  return answer(::symlinkat(target.c_str(), at.fd(), at.name()), "symlink", path);
}

Result<std::string> LocalTree::read_link(const std::string& path) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  std::string target(PATH_MAX, '\0');
  const ssize_t size = ::readlinkat(at.fd(), at.name(), target.data(), target.size());
  if (size < 0 && errno != EINVAL) return fail_errno("readlink", path);
  if (size >= 0) return target.substr(0, static_cast<size_t>(size));
  INDUCTORFS_TRY_ASSIGN(const auto named, hold(path));
  INDUCTORFS_TRY_ASSIGN(const auto owner, file_owner(named.get()));
  if (!owner || !S_ISLNK(owner->mode)) return fail(ErrorCode::kInvalid, path + " is no symbolic link");
  return inductorfs::read_file(AT_FDCWD, proc_path(named.get()), PATH_MAX);
}

Result<Fd> LocalTree::hold(const std::string& path) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  return open_at(at.fd(), at.name(), O_PATH | O_NOFOLLOW);
}

Result<std::optional<struct stat>> LocalTree::stat(const std::string& path) const {
  const auto named = hold(path);
  if (!named) {
    const auto code = named.error().code();
    const bool is_absent = code == ErrorCode::kNotFound || code == ErrorCode::kNotDirectory;
    return is_absent ? Result<std::optional<struct stat>>(std::nullopt) : fail(named.error());
  }
  INDUCTORFS_TRY_ASSIGN(auto status, status_of(named->get()));
  return std::optional(status);
}

Result<void> LocalTree::give_to(const std::string& path, const FileOwner& owner, UserCharges::NewFile* made) const {
  INDUCTORFS_TRY_ASSIGN(const auto named, hold(path));
  return give(named.get(), owner, made);
}

Result<void> LocalTree::set_owner(const std::string& path, std::optional<uid_t> uid, std::optional<gid_t> gid) const {
  INDUCTORFS_TRY_ASSIGN(const auto named, hold(path));
  INDUCTORFS_TRY_ASSIGN(const auto status, status_of(named.get()));
  mode_t mode = status.st_mode;
  if (!S_ISDIR(mode)) mode &= ~static_cast<mode_t>((mode & S_IXGRP) != 0 ? S_ISUID | S_ISGID : S_ISUID);
  INDUCTORFS_TRY(set_file_owner(named.get(), {uid.value_or(status.st_uid), gid.value_or(status.st_gid), mode}));
  charge(named.get(), path);
  return {};
}

Result<void> LocalTree::set_mode(const std::string& path, mode_t mode) const {
  INDUCTORFS_TRY_ASSIGN(const auto named, hold(path));
  INDUCTORFS_TRY_ASSIGN(const auto status, status_of(named.get()));
  return set_file_owner(named.get(), {status.st_uid, status.st_gid, (status.st_mode & S_IFMT) | (mode & 07777)});
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
