// SPDX-License-Identifier: Apache-2.0
#include "covered.h"

#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <string>
#include <string_view>

#include "inductorfs/base/number.h"
#include "inductorfs/base/text.h"
#include "walk.h"

namespace inductorfs::places {
namespace {

constexpr const char* kAttribute = "trusted.inductorfs.shown";
constexpr mode_t kPermissions = 07777;
constexpr mode_t kClosed = 0555;

/// UID:GID:MODE, each decimal.
std::optional<struct stat> kept_of(const Fd& directory) {
  std::array<char, 64> room{};
  const ssize_t size = ::getxattr(through_descriptor(directory).c_str(), kAttribute, room.data(), room.size());
  if (size <= 0) return std::nullopt;
  std::string_view text(room.data(), static_cast<size_t>(size));
  const auto uid = number_in<uid_t>(take_part(text, ':'));
  const auto gid = number_in<gid_t>(take_part(text, ':'));
  const auto mode = number_in<mode_t>(text);
  if (!uid || !gid || !mode || *mode > kPermissions) return std::nullopt;
  struct stat kept {};
  kept.st_uid = *uid;
  kept.st_gid = *gid;
  kept.st_mode = *mode;
  return kept;
}

}  // namespace

bool show_kept(const Fd& directory, struct stat& found) {
  const auto kept = kept_of(directory);
  if (!kept) return false;
  // With another mode somebody has said what he wants, in the way of before the first mount.
  if ((found.st_mode & kPermissions) != kClosed) return true;
  found.st_mode = (found.st_mode & ~kPermissions) | kept->st_mode;
  const bool is_roots = found.st_uid == 0 && found.st_gid == 0;
  if (is_roots) found.st_uid = kept->st_uid;
  if (is_roots) found.st_gid = kept->st_gid;
  return true;
}

Result<void> close_covered(const Fd& directory, const config::Ownership& shown) {
  const std::string text =
      std::to_string(shown.uid) + ":" + std::to_string(shown.gid) + ":" + std::to_string(shown.mode);
  const std::string path = through_descriptor(directory);
  if (::setxattr(path.c_str(), kAttribute, text.data(), text.size(), 0) != 0) return fail_errno("setxattr", kAttribute);
  // The mode first: a directory that is root's with another mode is one that somebody has changed.
  if (::chmod(path.c_str(), kClosed) != 0) return fail_errno("chmod");
  if (::fchownat(directory.get(), "", 0, 0, AT_EMPTY_PATH) != 0) return fail_errno("chown");
  return {};
}

}  // namespace inductorfs::places
