// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/places/links.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/text.h"
#include "inductorfs/config/paths.h"
#include "inductorfs/config/settings.h"
#include "inductorfs/places/own_mounts.h"
#include "inductorfs/places/place.h"
#include "walk.h"

namespace inductorfs::places {
namespace {

constexpr mode_t kMode = 0755;
constexpr mode_t kOthersWrite = 0022;

/// What torch unpickles and includes there is this user's; of a root of the mount it may be root's, too.
Result<void> check_owner(const Fd& directory, const std::string& path, bool or_root) {
  struct stat found {};
  if (::fstat(directory.get(), &found) != 0) return fail_errno("stat", path);
  const bool roots = or_root && found.st_uid == 0;
  const bool closed = (found.st_mode & kOthersWrite) == 0 || (found.st_mode & S_ISVTX) != 0;
  if (found.st_uid == ::geteuid() || (roots && closed)) return {};
  return fail(ErrorCode::kNotPermitted, path + " belongs to the user " + std::to_string(found.st_uid) +
                                            (roots ? ", and others may replace what lies there" : ""));
}

/// A directory of this user, made when it is missing; never what a link leads to.
Result<Fd> open_own(const Fd& around, const std::string& name, const std::string& path) {
  if (::mkdirat(around.get(), name.c_str(), kMode) != 0 && errno != EEXIST) return fail_errno("mkdir", path);
  Fd own(::openat(around.get(), name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!own && errno == ENOTDIR) return fail(ErrorCode::kNotPermitted, path + " is a link, or no directory");
  if (!own) return fail_errno("open", path);
  INDUCTORFS_TRY(check_owner(own, path, false));
  return own;
}

/// The same for each part of `name`.
Result<Fd> open_own_below(const Fd& directory, std::string_view name, std::string path) {
  Fd own(::fcntl(directory.get(), F_DUPFD_CLOEXEC, 0));
  while (!name.empty()) {
    const std::string part(take_part(name, '/'));
    path += "/" + part;
    INDUCTORFS_TRY_ASSIGN(own, open_own(own, part, path));
  }
  return own;
}

/// A link of this kind whose mount is another one, or has gone.
bool is_outdated(const std::string& target, const std::string& name) {
  if (!target.starts_with('/') || !target.ends_with("/" + name)) return false;
  const std::vector<MountEntry> table = read_mount_table();
  const MountEntry* const mount = find_mount_of(table, target);
  return (mount != nullptr && mount->is_ours()) || ::access(target.c_str(), F_OK) != 0;
}

struct Directory {
  Fd fd;
  std::string path;
};

/// The directory in the mount first: a link that leads nowhere would keep torch from making its own.
Result<void> link_place(const Directory& root, const Directory& torch, const config::Also& place) {
  INDUCTORFS_TRY(open_own_below(root.fd, place.name, root.path));
  const std::string name(base_name_of(place.path));
  const std::string_view on_the_way = std::string_view(place.name).substr(0, place.name.size() - name.size());
  INDUCTORFS_TRY_ASSIGN(const auto around, open_own_below(torch.fd, on_the_way, torch.path));
  const std::string target = root.path + "/" + place.name;
  const std::string before = link_target(around, name);
  if (before == target) return {};
  if (is_outdated(before, place.name)) (void)::unlinkat(around.get(), name.c_str(), 0);  // the next call tells
  if (::symlinkat(target.c_str(), around.get(), name.c_str()) == 0) return {};
  if (errno != EEXIST) return fail_errno("symlink", place.path);
  return fail(ErrorCode::kExists, "it exists, and this command has not made it: remove it when no job runs");
}

/// The root in the mount and torch's default directory, made when they are missing.
Result<std::pair<Directory, Directory>> open_both(const std::string& root, const std::string& directory) {
  if (config::is_at_or_below(root, directory) || config::is_at_or_below(directory, root)) {
    return fail(ErrorCode::kInvalid, root + " and " + directory + " must not contain each other");
  }
  INDUCTORFS_TRY(make_directories(root));
  INDUCTORFS_TRY_ASSIGN(auto there, open_path(root));
  INDUCTORFS_TRY(check_owner(there.fd, root, true));
  INDUCTORFS_TRY_ASSIGN(const auto parent, open_parent(directory));
  INDUCTORFS_TRY_ASSIGN(auto here, open_own(parent, std::string(base_name_of(directory)), directory));
  return std::pair(Directory{std::move(there.fd), root}, Directory{std::move(here), directory});
}

}  // namespace

Result<std::vector<std::string>> link_default_places(const std::string& root, const std::string& directory) {
  INDUCTORFS_TRY_ASSIGN(const auto both, open_both(root, directory));
  const auto& [in_mount, torch] = both;
  std::vector<std::string> told;
  for (const config::Also& place : config::default_places(directory)) {
    const Result<void> linked = link_place(in_mount, torch, place);
    told.push_back(place.path +
                   (linked ? " leads into the mount" : " does not lead into the mount: " + linked.error().what()));
  }
  return told;
}

Result<void> make_default_places(const std::string& root, const std::string& directory) {
  INDUCTORFS_TRY_ASSIGN(const auto both, open_both(root, directory));
  for (const config::Also& place : config::default_places(directory)) {
    INDUCTORFS_TRY(open_own_below(both.second.fd, place.name, directory));
  }
  return {};
}

}  // namespace inductorfs::places
