// SPDX-License-Identifier: Apache-2.0
#include "walk.h"

#include <fcntl.h>
#include <sys/fsuid.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>

namespace inductorfs::places {
namespace {

constexpr uid_t kNobody = static_cast<uid_t>(-1);  ///< setfsuid and setfsgid refuse it, and answer who is in force

/// Only root and this user may make this process wait.
Result<void> check_server(const MountEntry& mount, const std::string& path) {
  const std::optional<uid_t> user = fuse_user_of(mount);
  if (!user || *user == 0 || *user == ::geteuid()) return {};
  return fail(ErrorCode::kNotPermitted, path + " is a file system that the user " + std::to_string(*user) +
                                            " serves: unmount it, or name another place");
}

}  // namespace

std::string through_descriptor(const Fd& fd) { return "/proc/self/fd/" + std::to_string(fd.get()); }

Result<Step> open_root() {
  Step root{Fd(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC)), 0};
  if (!root.fd) return fail_errno("open", "/");
  INDUCTORFS_TRY_ASSIGN(const auto mount, mount_id_of(root.fd));
  root.mount = mount;
  return root;
}

Result<Step> step_into(const Step& at, const std::string& name, const std::string& path,
                       std::optional<MountEntry>& entered) {
  Step next{Fd(::openat(at.fd.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC)), 0};
  if (!next.fd && errno == ENOENT) return fail(ErrorCode::kNotFound);
  if (!next.fd) return fail_errno("open", path);
  INDUCTORFS_TRY_ASSIGN(const auto mount, mount_id_of(next.fd));
  next.mount = mount;
  if (next.mount == at.mount) return next;
  const std::vector<MountEntry> table = read_mount_table();
  const MountEntry* const found = find_mount_by_id(table, next.mount);
  if (found == nullptr) return fail(ErrorCode::kBusy, path + " was unmounted just now: try again");
  INDUCTORFS_TRY(check_server(*found, path));
  entered = *found;
  return next;
}

std::string link_target(const Fd& directory, const std::string& name) {
  std::array<char, PATH_MAX> target{};
  const ssize_t size = ::readlinkat(directory.get(), name.c_str(), target.data(), target.size());
  return size < 0 ? std::string() : std::string(target.data(), static_cast<size_t>(size));
}

Result<Step> open_path(const std::string& path) {
  Result<Step> at = open_root();
  std::optional<MountEntry> ignored;
  for (size_t from = 1; at && from < path.size();) {
    const size_t end = std::min(path.find('/', from), path.size());
    at = step_into(*at, path.substr(from, end - from), path.substr(0, end), ignored);
    from = end + 1;
  }
  return at;
}

ActingAs::ActingAs(uid_t uid, gid_t gid)
    : uid_(static_cast<uid_t>(::setfsuid(kNobody))), gid_(static_cast<gid_t>(::setfsgid(kNobody))) {
  (void)::setfsgid(gid);  // they answer who was in force before, so whether it worked is asked
  (void)::setfsuid(uid);
  works_ = static_cast<uid_t>(::setfsuid(kNobody)) == uid && static_cast<gid_t>(::setfsgid(kNobody)) == gid;
}

ActingAs::~ActingAs() {
  (void)::setfsuid(uid_);  // what it was before is always allowed
  (void)::setfsgid(gid_);
}

}  // namespace inductorfs::places
