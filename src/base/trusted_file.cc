// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/trusted_file.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>

#include "inductorfs/base/fd.h"

namespace inductorfs {
namespace {

constexpr int kMostLinks = 40;  // as many as the kernel follows
constexpr size_t kNamesLimit = size_t{64} << 10;

/// In a user namespace a file of the host's root shows the uid that stands for all that have none here. Who made the
/// namespace has put the file there.
bool is_without_owner(uid_t uid) {
  const auto number_in = [](const char* path) -> unsigned long {
    const auto text = read_file(AT_FDCWD, path, 64);
    return text ? std::strtoul(text->c_str(), nullptr, 10) : ULONG_MAX;
  };
  if (uid == 0 || uid != number_in("/proc/sys/kernel/overflowuid")) return false;
  const auto map = read_file(AT_FDCWD, "/proc/self/uid_map", kNamesLimit);
  unsigned long first = 0;
  unsigned long outside = 0;
  unsigned long count = 0;
  const bool is_whole = map && std::sscanf(map->c_str(), "%lu %lu %lu", &first, &outside, &count) == 3 && first == 0 &&
                        outside == 0 && count >= UINT32_MAX;
  return map && !is_whole;
}

bool is_trusted_owner(uid_t uid) { return uid == 0 || uid == ::geteuid() || is_without_owner(uid); }

/// Whether the group has this user alone: with the usual umask of some distributions (002) it may write to whatever the
/// user makes.
bool is_own_group(gid_t gid) {
  std::array<char, kNamesLimit> names{};
  passwd user{};
  passwd* found_user = nullptr;
  if (::getpwuid_r(::geteuid(), &user, names.data(), names.size(), &found_user) != 0 || found_user == nullptr) {
    return false;
  }
  const std::string name = user.pw_name;
  if (user.pw_gid != gid) return false;
  group own{};
  group* found_group = nullptr;
  if (::getgrgid_r(gid, &own, names.data(), names.size(), &found_group) != 0 || found_group == nullptr) return false;
  if (name != own.gr_name) return false;
  for (char** member = own.gr_mem; member != nullptr && *member != nullptr; ++member) {
    if (name != *member) return false;
  }
  return true;
}

bool others_may_write(const std::string& path, const struct stat& found) {
  if ((found.st_mode & S_IWOTH) != 0) return true;
  if ((found.st_mode & S_IWGRP) == 0) return false;
  // With an access control list these bits are the most that any user or group of the list may have.
  if (::lgetxattr(path.c_str(), "system.posix_acl_access", nullptr, 0) > 0) return true;
  return found.st_gid != 0 && !is_own_group(found.st_gid);
}

bool is_read_only(const std::string& path) {
  struct statvfs disk {};
  return ::statvfs(path.c_str(), &disk) == 0 && (disk.f_flag & ST_RDONLY) != 0;
}

std::string mode_text(const struct stat& found) {
  std::array<char, 64> text{};
  (void)std::snprintf(text.data(), text.size(), "mode %04o, owner %u, group %u", found.st_mode & 07777U, found.st_uid,
                      found.st_gid);
  return text.data();
}

std::string owner() { return ::geteuid() == 0 ? "root" : "root and the user " + std::to_string(::geteuid()); }

/// Walks to a file and looks at everything on the way. Confined to one call.
class Walk {
 public:
  explicit Walk(const std::string& path) : wanted_(path), rest_(path) {}

  /// Returns the path without symbolic links.
  Result<std::string> run() {
    if (wanted_.size() >= PATH_MAX) return fail(ErrorCode::kNameTooLong, "the path has more than 4095 bytes");
    INDUCTORFS_TRY(look_at_directory("/"));
    while (!rest_.empty()) INDUCTORFS_TRY(step());
    return at_;
  }

 private:
  Result<void> step() {
    const size_t end = std::min(rest_.find('/'), rest_.size());
    const std::string name = rest_.substr(0, end);
    rest_.erase(0, end + 1);
    if (name.empty() || name == ".") return {};
    if (name == "..") {
      at_.resize(at_.empty() ? 0 : at_.rfind('/'));
      return {};
    }
    const std::string path = at_ + "/" + name;
    struct stat found {};
    if (::lstat(path.c_str(), &found) != 0) return fail_errno("stat", path);
    if (S_ISLNK(found.st_mode)) return is_own_descriptor() ? look_at_descriptor(path) : follow(path, found);
    at_ = path;
    return S_ISDIR(found.st_mode) ? look_at_directory(path) : look_at_file(path, found);
  }

  /// Whether the last link is that of an open file of this process, as /dev/stdin is in the end: what such a link says
  /// is no path, perhaps.
  [[nodiscard]] bool is_own_descriptor() const {
    return rest_.empty() && at_ == "/proc/" + std::to_string(::getpid()) + "/fd";
  }

  Result<void> look_at_descriptor(const std::string& path) {
    struct stat found {};
    if (::stat(path.c_str(), &found) != 0) return fail_errno("stat", path);
    at_ = path;
    // What has no name can be opened through this process alone, which is its user's.
    return found.st_nlink == 0 ? Result<void>() : look_at_file(path, found);
  }

  Result<void> follow(const std::string& path, const struct stat& found) {
    if (!is_trusted_owner(found.st_uid) && !is_read_only(at_.empty() ? "/" : at_)) {
      return fail(ErrorCode::kNotPermitted, path + " is a symbolic link of the user " + std::to_string(found.st_uid) +
                                                ", who could let it lead elsewhere: name the file that it leads to");
    }
    std::array<char, PATH_MAX> target{};
    const ssize_t size = ::readlink(path.c_str(), target.data(), target.size());
    if (size <= 0) return fail_errno("readlink", path);
    if (++links_ > kMostLinks || static_cast<size_t>(size) + rest_.size() + 1 >= 2UL * PATH_MAX) {
      return fail(error_from_errno(ELOOP, "open", wanted_));
    }
    if (target[0] == '/') at_.clear();
    rest_.insert(0, std::string(target.data(), static_cast<size_t>(size)) + "/");
    return {};
  }

  Result<void> look_at_directory(const std::string& path) const {
    struct stat found {};
    if (::lstat(path.c_str(), &found) != 0) return fail_errno("stat", path);
    const bool is_open = others_may_write(path, found) && (found.st_mode & S_ISVTX) == 0;
    if ((is_trusted_owner(found.st_uid) && !is_open) || is_read_only(path)) return {};
    const std::string remedy = is_open ? "run chmod go-w " + path + ", or move the file" : "move the file";
    return fail(ErrorCode::kNotPermitted, "others than " + owner() + " may replace " + wanted_ + ", because of " +
                                              path + " (" + mode_text(found) + "): " + remedy);
  }

  Result<void> look_at_file(const std::string& path, const struct stat& found) const {
    // A remedy for its mode would be wrong: nobody reads it, and /dev/null must stay everybody's.
    if (!S_ISREG(found.st_mode)) {
      return fail(ErrorCode::kInvalid, wanted_ + " is not a regular file; name a regular file");
    }
    const bool is_open = others_may_write(path, found);
    if ((is_trusted_owner(found.st_uid) && !is_open) || is_read_only(path)) return {};
    const std::string remedy =
        is_trusted_owner(found.st_uid) ? "chmod go-w " : "chown " + std::to_string(::geteuid()) + " ";
    return fail(ErrorCode::kNotPermitted, "others than " + owner() + " may write to " + path + " (" + mode_text(found) +
                                              "): check what it says, and run " + remedy + path);
  }

  const std::string wanted_;
  std::string rest_;
  std::string at_;  ///< looked at; empty: the root directory
  int links_ = 0;
};

}  // namespace

Result<void> check_trusted_file(const std::string& path) {
  const Result<std::string> real = Walk(path).run();
  return real ? Result<void>() : fail(real.error());
}

Result<std::string> read_trusted_file(const std::string& path, uint64_t limit) {
  INDUCTORFS_TRY_ASSIGN(const auto real, Walk(path).run());
  return read_file(AT_FDCWD, real, limit);
}

}  // namespace inductorfs
