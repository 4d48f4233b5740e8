// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/common/in_root.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <string_view>

#include "inductorfs/base/handle.h"
#include "inductorfs/base/regular_file.h"

namespace inductorfs::fingerprint {
namespace {

/// As the kernel's MAXSYMLINKS.
constexpr int kLinkLimit = 40;
/// clang's intrinsics are 250 headers in one directory.
constexpr size_t kNameLimit = 10'000;

int close_directory(DIR* directory) { return closedir(directory); }
using Directory = Handle<DIR, close_directory>;

Result<std::string> target_of(const Fd& link, const std::string& path) {
  std::array<char, PATH_MAX> text{};
  const ssize_t size = readlinkat(link.get(), "", text.data(), text.size());
  if (size < 0) return fail_errno("read link", path);
  return std::string(text.data(), static_cast<size_t>(size));
}

DirectoryEntry::Kind kind_of(unsigned char type) {
  if (type == DT_REG) return DirectoryEntry::Kind::kFile;
  if (type == DT_DIR) return DirectoryEntry::Kind::kDirectory;
  return type == DT_LNK ? DirectoryEntry::Kind::kLink : DirectoryEntry::Kind::kOther;
}

/// Splits off the first component; empty at the end of the path.
std::string take_component(std::string& path) {
  const size_t start = std::min(path.find_first_not_of('/'), path.size());
  const size_t end = std::min(path.find('/', start), path.size());
  std::string component = path.substr(start, end - start);
  path.erase(0, end);
  return component;
}

}  // namespace

Result<InRoot> InRoot::open(const std::string& directory) {
  INDUCTORFS_TRY_ASSIGN(auto root, open_at(AT_FDCWD, directory, O_PATH | O_DIRECTORY));
  return InRoot(std::move(root));
}

Result<Fd> InRoot::open_at_path(const std::string& path, int flags) const {
  if (!root_) return open_at(AT_FDCWD, path, flags);
  return open_in_root(root_.get(), path, flags);
}

Result<std::string> InRoot::real_path(const std::string& path) const {
  std::string real;
  std::string rest = path;
  int links = 0;
  for (std::string component = take_component(rest); !component.empty(); component = take_component(rest)) {
    if (component == ".") continue;
    if (component == "..") {
      real.erase(std::min(real.rfind('/'), real.size()));
      continue;
    }
    const std::string next = real + "/" + component;
    INDUCTORFS_TRY_ASSIGN(const auto found, open_at_path(next, O_PATH | O_NOFOLLOW));
    struct stat status {};
    if (fstat(found.get(), &status) != 0) return fail_errno("stat", next);
    if (!S_ISLNK(status.st_mode)) {
      real = next;
      continue;
    }
    if (++links > kLinkLimit) return fail(ErrorCode::kInvalid, path + " has too many symbolic links");
    INDUCTORFS_TRY_ASSIGN(const auto target, target_of(found, next));
    if (target.starts_with('/')) real.clear();
    rest = target + "/" + rest;
  }
  return real.empty() ? "/" : real;
}

Result<Fd> InRoot::open_regular(const std::string& path, uint64_t limit) const {
  INDUCTORFS_TRY_ASSIGN(const auto file, open_at_path(path, O_PATH));
  return reopen_regular(file, path, limit);
}

Result<std::string> InRoot::read_regular(const std::string& path, uint64_t limit) const {
  INDUCTORFS_TRY_ASSIGN(const auto file, open_regular(path, limit));
  return read_whole(file, path);
}

Result<std::string> InRoot::read_link(const std::string& path) const {
  INDUCTORFS_TRY_ASSIGN(const auto link, open_at_path(path, O_PATH | O_NOFOLLOW));
  return target_of(link, path);
}

std::optional<struct stat> InRoot::status(const std::string& path) const {
  struct stat status {};
  if (!root_) return ::stat(path.c_str(), &status) == 0 ? std::optional(status) : std::nullopt;
  const auto found = open_at_path(path, O_PATH);
  if (!found || fstat(found->get(), &status) != 0) return std::nullopt;
  return status;
}

bool InRoot::is_directory(const std::string& path) const {
  const auto found = status(path);
  return found && S_ISDIR(found->st_mode);
}

bool InRoot::is_regular(const std::string& path) const {
  const auto found = status(path);
  return found && S_ISREG(found->st_mode);
}

bool InRoot::is_program(const std::string& path) const {
  const auto found = status(path);
  return found && S_ISREG(found->st_mode) && (found->st_mode & (S_IXUSR | S_IXGRP | S_IXOTH)) != 0;
}

Result<std::vector<DirectoryEntry>> InRoot::entries_in(const std::string& directory, size_t limit,
                                                       bool with_status) const {
  INDUCTORFS_TRY_ASSIGN(auto found, open_at_path(directory, O_RDONLY | O_DIRECTORY | O_NONBLOCK));
  const Directory open(fdopendir(found.get()));
  if (!open) return fail_errno("list", directory);
  const int listed = found.release();  // the stream closes it
  std::vector<DirectoryEntry> entries;
  errno = 0;
  while (const dirent* const entry = readdir(open.get())) {
    const std::string_view name(entry->d_name);
    if (name == "." || name == "..") continue;
    if (entries.size() >= limit) return fail(ErrorCode::kTooLarge, directory + " has too many files");
    unsigned char type = entry->d_type;
    struct stat status {};
    const bool asks = type == DT_UNKNOWN || (with_status && type == DT_REG);
    if (asks && fstatat(listed, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0) type = IFTODT(status.st_mode);
    entries.push_back({std::string(name), kind_of(type), status});
    errno = 0;
  }
  if (errno != 0) return fail_errno("list", directory);
  std::sort(entries.begin(), entries.end(),
            [](const DirectoryEntry& one, const DirectoryEntry& other) { return one.name < other.name; });
  return entries;
}

Result<std::vector<std::string>> InRoot::names_in(const std::string& directory) const {
  auto entries = entries_in(directory, kNameLimit);
  if (!entries && entries.error().code() == ErrorCode::kTooLarge) return fail(entries.error());
  std::vector<std::string> names;
  if (!entries) return names;
  for (DirectoryEntry& entry : *entries) names.push_back(std::move(entry.name));
  return names;
}

}  // namespace inductorfs::fingerprint
