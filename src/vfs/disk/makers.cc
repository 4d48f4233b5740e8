// SPDX-License-Identifier: Apache-2.0
#include "vfs/disk/makers.h"

#include <sys/stat.h>
#include <sys/xattr.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

namespace inductorfs::vfs {
namespace {

constexpr const char* kName = "user.inductorfs.makers";
constexpr char kUser = 'u';
constexpr char kGroup = 'g';
constexpr char kOpen = 'o';
constexpr std::string_view kAnybody = "*";

/// Empty where there is none; an error where the disk does not tell.
Result<std::string> mark_on(int file) {
  std::array<char, kMarkLimit> value{};
  const ssize_t size = ::fgetxattr(file, kName, value.data(), value.size());
  if (size >= 0) return std::string(value.data(), static_cast<size_t>(size));
  if (errno == ENODATA || errno == EOPNOTSUPP) return std::string();  // the latter: another file is mounted over it
  return fail_errno("getxattr", kName);
}

/// "u1002 g100 o18 *"; what is no word of ours may be anybody.
Makers makers_in(uid_t owner, std::string_view mark) {
  Makers makers{{owner}, {}, false, 0};
  while (!mark.empty()) {
    const std::string_view word = mark.substr(0, mark.find(' '));
    mark.remove_prefix(std::min(word.size() + 1, mark.size()));
    id_t number = 0;
    const char* const end = word.data() + word.size();
    const auto read = word.empty() ? std::from_chars_result{} : std::from_chars(word.data() + 1, end, number);
    const bool is_number = !word.empty() && read.ptr == end && read.ec == std::errc();
    if (is_number && word[0] == kOpen) {
      makers.once_open |= number;
    } else if (!is_number || (word[0] != kUser && word[0] != kGroup)) {
      makers.anybody = true;
    } else {
      (word[0] == kUser ? makers.users : makers.groups).push_back(number);
    }
  }
  return makers;
}

/// Who else than the owner may write, by the mode.
std::string word_for(mode_t mode, gid_t group) {
  if ((mode & S_IWOTH) != 0) return std::string(kAnybody);
  return (mode & S_IWGRP) != 0 ? kGroup + std::to_string(group) : std::string();
}

Result<void> add(int file, std::string word) {
  INDUCTORFS_TRY_ASSIGN(const std::string mark, mark_on(file));
  const auto has = [&](std::string_view one) {
    return (" " + mark + " ").find(" " + std::string(one) + " ") != std::string::npos;
  };
  if (has(word) || has(kAnybody)) return {};
  if (static_cast<size_t>(std::ranges::count(mark, ' ')) + 1 >= kMostMakers) word = kAnybody;
  const std::string now = mark.empty() ? word : mark + " " + word;
  return ::fsetxattr(file, kName, now.data(), now.size(), 0) == 0 ? Result<void>{} : fail_errno("setxattr", kName);
}

Result<void> note(int file, std::string word) {
  INDUCTORFS_TRY_ASSIGN(const auto status, status_of(file));
  return word == kUser + std::to_string(status.st_uid) ? Result<void>() : add(file, std::move(word));
}

}  // namespace

Result<void> note_owner(int file) {
  INDUCTORFS_TRY_ASSIGN(const auto status, status_of(file));
  return status.st_uid == 0 ? Result<void>() : add(file, kUser + std::to_string(status.st_uid));
}

Result<void> note_maker(int file, uid_t user) { return note(file, kUser + std::to_string(user)); }

Result<void> note_writers(int file, mode_t mode, gid_t group) {
  const std::string word = word_for(mode, group);
  return word.empty() ? Result<void>() : note(file, word);
}

Result<void> note_open(int file, mode_t rights) {
  return rights == 0 ? Result<void>() : note(file, kOpen + std::to_string(rights));
}

Result<Makers> makers_of(const LocalTree& tree, const std::string& place) {
  INDUCTORFS_TRY_ASSIGN(const auto status, tree.stat(place));
  if (!status) return Makers{};
  const auto mark = tree.xattr(place, kName);
  constexpr std::array kNone = {ErrorCode::kNoData, ErrorCode::kNotFound, ErrorCode::kNotSupported};
  if (!mark && std::ranges::find(kNone, mark.error().code()) == kNone.end()) return fail(mark.error());
  return makers_in(status->st_uid, mark.value_or(""));
}

Result<Makers> makers_of(int file) {
  INDUCTORFS_TRY_ASSIGN(const auto status, status_of(file));
  INDUCTORFS_TRY_ASSIGN(const auto mark, mark_on(file));
  return makers_in(status.st_uid, mark);
}

}  // namespace inductorfs::vfs
