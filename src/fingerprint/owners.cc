// SPDX-License-Identifier: Apache-2.0
#include "owners.h"

#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <deque>
#include <filesystem>
#include <system_error>
#include <utility>

#include "inductorfs/base/text.h"

namespace inductorfs::fingerprint {
namespace {

namespace fs = std::filesystem;

/// As the kernel's limit of links in one path.
constexpr int kLinkLimit = 40;
constexpr size_t kEntryLimit = 100000;

/// Puts the components of `path` before those that are left.
void put_first(std::deque<std::string>& left, const std::string& path) {
  size_t end = path.size();
  while (end > 0) {
    const size_t slash = path.rfind('/', end - 1);
    const size_t start = slash == std::string::npos ? 0 : slash + 1;
    if (start < end) left.push_front(path.substr(start, end - start));
    end = slash == std::string::npos ? 0 : slash;
  }
}

Result<std::string> target_of(const std::string& link) {
  std::array<char, PATH_MAX> text{};
  const ssize_t size = readlink(link.c_str(), text.data(), text.size());
  if (size < 0) return fail_errno("readlink", link);
  return std::string(text.data(), static_cast<size_t>(size));
}

/// With an access list the bits of the group say what any user or group in the list may do.
bool has_access_list(const std::string& path) {
  return lgetxattr(path.c_str(), "system.posix_acl_access", nullptr, 0) > 0;
}

}  // namespace

void Owners::judge(const std::string& path, const struct stat& status, bool is_folder) {
  const std::string& shown = path.empty() ? "/" : path;
  if (status.st_uid != 0) found_.emplace(status.st_uid, shown);
  if (S_ISLNK(status.st_mode) || !open_.empty()) return;  // a link's mode means nothing
  // In a directory with the sticky bit others can create names, but cannot replace those on our way.
  const bool sticky = S_ISDIR(status.st_mode) && (status.st_mode & S_ISVTX) != 0 && !is_folder;
  // A group of the owner's choice is the owner's affair, unless the owner is root.
  const bool by_group =
      (status.st_mode & S_IWGRP) != 0 && status.st_uid == 0 && (status.st_gid != 0 || has_access_list(shown));
  const bool by_all = (status.st_mode & S_IWOTH) != 0;
  if (by_all && !sticky) open_ = shown + " can be written by everybody";
  if (by_group && !by_all && !sticky) open_ = shown + " can be written by group " + std::to_string(status.st_gid);
}

Result<void> Owners::follow(const std::string& path, bool is_folder) {
  if (!path.starts_with('/')) return fail(ErrorCode::kInvalid, path + ": not an absolute path");
  std::deque<std::string> left;
  put_first(left, path);
  std::string at;  // empty: the root
  int links = 0;
  while (true) {
    struct stat status {};
    if (lstat(at.empty() ? "/" : at.c_str(), &status) != 0) return fail_errno("stat", at);
    if (S_ISLNK(status.st_mode)) {
      judge(at, status, false);
      INDUCTORFS_TRY_ASSIGN(const auto target, target_of(at));
      if (++links > kLinkLimit) return fail(ErrorCode::kInvalid, path + ": too many symbolic links");
      at = target.starts_with('/') ? std::string() : parent_of(at);
      put_first(left, target);
    } else {
      judge(at, status, is_folder && left.empty());
    }
    if (left.empty()) return {};
    const std::string name = std::exchange(left.front(), {});
    left.pop_front();
    if (name == "..") {
      at = parent_of(at);
    } else if (name != ".") {
      at.append("/").append(name);
    }
  }
}

Result<void> Owners::add(const std::string& path) { return follow(path, false); }

Result<void> Owners::add_folder(const std::string& path) { return follow(path, true); }

Result<void> Owners::add_entries(const std::string& path) {
  INDUCTORFS_TRY(add_folder(path));
  std::error_code error;
  size_t count = 0;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    if (++count > kEntryLimit) return fail(ErrorCode::kTooLarge, path + " has too many entries");
    struct stat status {};
    const std::string entry = at->path().string();
    if (lstat(entry.c_str(), &status) != 0) continue;  // gone meanwhile
    if (S_ISLNK(status.st_mode)) {
      (void)add(entry);  // a dangling link leads to no code
    } else {
      judge(entry, status, false);
    }
  }
  if (error) return fail(error_from_errno(error.value(), "list", path));
  return {};
}

Result<uid_t> Owners::only() const {
  if (!open_.empty()) return fail(ErrorCode::kNotPermitted, open_);
  if (found_.size() > 1) {
    const auto& [one, first] = *found_.begin();
    const auto& [other, second] = *std::next(found_.begin());
    return fail(ErrorCode::kNotPermitted, first + " belongs to uid " + std::to_string(one) + " and " + second +
                                              " to uid " + std::to_string(other));
  }
  return found_.empty() ? 0 : found_.begin()->first;
}

Result<ChildAnswer> run_as_owner(const std::vector<std::string>& command, const Owners& owners, Milliseconds deadline,
                                 const std::vector<std::string>& environment) {
  ChildOptions options;
  options.environment = environment;
  if (geteuid() != 0) return run_child(command, deadline, options);
  const Result<uid_t> user = owners.only();
  if (!user) {
    return fail(ErrorCode::kNotPermitted, command.front() +
                                              " is not run by root, because other users could change what it runs: " +
                                              user.error().what() + "; give all of it to one user");
  }
  options.bare = true;
  if (*user != 0) options.user = *user;
  // The child's PATH is another: both must mean the program that was looked at.
  std::vector<std::string> words = command;
  words.front() = program_file(words.front());
  if (words.front().empty()) return fail(ErrorCode::kNotFound, command.front() + ": no such program");
  return run_child(words, deadline, options);
}

}  // namespace inductorfs::fingerprint
