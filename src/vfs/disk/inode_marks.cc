// SPDX-License-Identifier: Apache-2.0
#include "vfs/disk/inode_marks.h"

#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>

#include "inductorfs/base/own_user.h"
#include "vfs/disk/local_tree.h"

namespace inductorfs::vfs {
namespace {

constexpr const char* kOwner = "user.inductorfs.owner";
constexpr const char* kSpecials = "user.inductorfs.specials";
constexpr size_t kLongest = 64;
constexpr int kOctal = 8;

/// Takes a number from the front, and the space after it.
bool take(std::string_view& text, unsigned long& number, int base) {
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (read.ec != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(read.ptr - text.data()));
  if (text.starts_with(' ')) text.remove_prefix(1);
  return true;
}

/// "1000 100 100644". What says something else is nobody's but the daemon's.
std::optional<FileOwner> read(std::string_view text) {
  unsigned long uid = 0;
  unsigned long gid = 0;
  unsigned long mode = 0;
  const bool is_one = take(text, uid, 10) && take(text, gid, 10) && take(text, mode, kOctal) && text.empty();
  if (!is_one || (mode & S_IFMT) == 0) return std::nullopt;
  return FileOwner{static_cast<uid_t>(uid), static_cast<gid_t>(gid), static_cast<mode_t>(mode)};
}

/// fgetxattr(2) and fsetxattr(2) for descriptors of O_PATH too.
ssize_t get(int file, const char* name, char* value, size_t size) {
  const ssize_t got = ::fgetxattr(file, name, value, size);
  if (got >= 0 || errno != EBADF) return got;
  return ::getxattr(proc_path(file).c_str(), name, value, size);
}

bool set(int file, const char* name, std::string_view value) {
  if (::fsetxattr(file, name, value.data(), value.size(), 0) == 0) return true;
  if (errno != EBADF) return false;
  return ::setxattr(proc_path(file).c_str(), name, value.data(), value.size(), 0) == 0;
}

Result<std::optional<FileOwner>> found(ssize_t size, const std::array<char, kLongest>& value) {
  if (size >= 0) return read({value.data(), static_cast<size_t>(size)});
  // EOPNOTSUPP: something else is mounted over that file.
  if (errno == ENODATA || errno == ERANGE || errno == EOPNOTSUPP) return std::optional<FileOwner>();
  return fail_errno("getxattr", kOwner);
}

}  // namespace

Result<std::optional<FileOwner>> file_owner(int file) {
  std::array<char, kLongest> value{};
  return found(get(file, kOwner, value.data(), value.size()), value);
}

Result<std::optional<FileOwner>> file_owner_in(int directory, const char* name) {
  std::array<char, kLongest> value{};
  const std::string place = proc_path(directory) + "/" + name;
  return found(::lgetxattr(place.c_str(), kOwner, value.data(), value.size()), value);
}

Result<void> set_file_owner(int file, const FileOwner& owner) {
  std::array<char, kLongest> value{};
  const int size = std::snprintf(value.data(), value.size(), "%u %u %o", owner.uid, owner.gid, owner.mode);
  const bool done = set(file, kOwner, {value.data(), static_cast<size_t>(size)});
  return done ? Result<void>{} : fail_errno("setxattr", kOwner);
}

bool holds_specials(int directory) { return get(directory, kSpecials, nullptr, 0) >= 0 || errno != ENODATA; }

Result<void> note_specials(int directory) {
  if (get(directory, kSpecials, nullptr, 0) >= 0) return {};  // it is a write of the disk's journal
  return set(directory, kSpecials, "1") ? Result<void>{} : fail_errno("setxattr", kSpecials);
}

Result<struct stat> status_of(int file) {
  struct stat status {};
  if (::fstat(file, &status) != 0) return fail_errno("stat");
  INDUCTORFS_TRY_ASSIGN(const auto owner, file_owner(file));
  if (!owner && status.st_uid == ::geteuid()) status.st_uid = own_uid();
  if (!owner && status.st_gid == ::getegid()) status.st_gid = own_gid();
  if (!owner) return status;
  status.st_uid = owner->uid;
  status.st_gid = owner->gid;
  // A directory is one whatever was noted of it, and a file never is.
  if (S_ISDIR(status.st_mode) == S_ISDIR(owner->mode)) status.st_mode = owner->mode;
  return status;
}

Result<std::optional<std::string>> seal_of(int file) {
  std::array<char, 128> value{};
  const ssize_t size = ::fgetxattr(file, kSealMark, value.data(), value.size());
  if (size < 0 && errno != ENODATA) return fail_errno("getxattr", kSealMark);
  if (size <= 0) return std::nullopt;
  return std::string(value.data(), static_cast<size_t>(size));
}

Result<bool> is_stores(int file) {
  if (get(file, kSealMark, nullptr, 0) >= 0) return true;
  return errno == ENODATA ? Result<bool>(false) : fail_errno("getxattr", kSealMark);
}

Result<void> set_seal(int file, std::string_view digest_hex) {
  return set(file, kSealMark, digest_hex) ? Result<void>{} : fail_errno("setxattr", kSealMark);
}

void remove_seal(int file) {
  (void)::fremovexattr(file, kSealMark);  // one that stays costs the next writer a copy
}

bool is_changed(int file) { return ::fgetxattr(file, kChangedMark, nullptr, 0) >= 0 || errno != ENODATA; }

void mark_changed(int file, uint64_t instead_of) {
  (void)set(file, kChangedMark, std::to_string(instead_of));  // without it the next start publishes what checks out
}

Result<std::optional<std::string>> read_mark(const LocalTree& tree, const std::string& path, const char* name) {
  auto value = tree.xattr(path, name, kMarkLimit);
  if (!value && value.error().code() == ErrorCode::kNoData) return std::nullopt;
  return value;
}

std::optional<std::string> mark_of(const LocalTree& tree, const std::string& path, const char* name) {
  return read_mark(tree, path, name).value_or(std::nullopt);
}

void set_mark(const LocalTree& tree, const std::string& path, const char* name, const std::string& value) {
  (void)tree.set_xattr(path, name, value, 0);  // best effort
}

void remove_mark(const LocalTree& tree, const std::string& path, const char* name) {
  (void)tree.set_xattr(path, name, std::nullopt, 0);  // most have none
}

}  // namespace inductorfs::vfs
