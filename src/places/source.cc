// SPDX-License-Identifier: Apache-2.0
#include "source.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "inductorfs/base/text.h"
#include "inductorfs/places/own_mounts.h"
#include "walk.h"

namespace inductorfs::places {
namespace {

constexpr mode_t kPermissions = 07777;
constexpr mode_t kUsersMode = 0755;
constexpr mode_t kOthersWrite = 0022;
constexpr int kMostNames = 4096;

/// The root of the mount. Who may rename a directory around it can have put anything else at its path.
Result<Fd> open_mount(const std::string& mountpoint, const BindId& mount) {
  Result<Step> at = open_path(mountpoint);
  const std::vector<MountEntry> table = read_mount_table();
  const MountEntry* const entry = at ? find_mount_by_id(table, at->mount) : nullptr;
  if (entry != nullptr && entry->id == mount.mount && entry->device == mount.device) return std::move(at->fd);
  return fail(ErrorCode::kNotPermitted, mountpoint + " leads to something else than this mount: look who may rename " +
                                            "the directories around it, and mount again");
}

/// One name of this mount, made with this owner and mode when it is missing.
Result<Fd> open_or_make(const Fd& at, uint64_t mount, const std::string& part, const PlaceUser& owner, mode_t mode,
                        const std::string& path) {
  const bool made = ::mkdirat(at.get(), part.c_str(), mode) == 0;
  if (!made && errno != EEXIST) return fail_errno("mkdir", path);
  Fd next(::openat(at.get(), part.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!next) return fail_errno("open", path);
  INDUCTORFS_TRY_ASSIGN(const auto found, mount_id_of(next));
  if (found != mount) {
    return fail(ErrorCode::kNotPermitted, path + " is another mount: unmount that, or name another place");
  }
  // Refused for an ordinary user who mounts for another: then it stays the daemon's own.
  if (made) (void)::fchownat(next.get(), "", owner.uid, owner.gid, AT_EMPTY_PATH);
  // A directory of torch's is shown with the mode of the mount until somebody chooses another.
  const bool closed = (mode & kOthersWrite) == 0;
  if (made && closed && ::chmod(through_descriptor(next).c_str(), mode) != 0) return fail_errno("chmod", path);
  return next;
}

/// What is shown to `user` is nobody else's to write to: compilers include what lies there.
Result<void> close_to_others(const Fd& directory, const PlaceUser& user, const std::string& path) {
  struct stat found {};
  if (::fstat(directory.get(), &found) != 0) return fail_errno("stat", path);
  if (found.st_uid != 0 && found.st_uid != user.uid) {
    return fail(ErrorCode::kNotPermitted, path + " belongs to the user " + std::to_string(found.st_uid) +
                                              ", and the place is the user " + std::to_string(user.uid) +
                                              "'s: remove it, or name a place of its owner");
  }
  if ((found.st_mode & kOthersWrite) == 0) return {};
  // The numbers of directories that only the cluster has begin with the bits 01 (inode_number_of,
  // src/vfs/tree/root_tree.h).
  if (found.st_ino >> 62 != 1) {
    return fail(ErrorCode::kNotPermitted, path + " may be written to by others: look at what they put there, take " +
                                              "their right away (chmod go-w), and mount again");
  }
  const mode_t mode = found.st_mode & kPermissions & ~kOthersWrite;
  if (::chmod(through_descriptor(directory).c_str(), mode) != 0) return fail_errno("chmod", path);
  return {};
}

}  // namespace

Result<Fd> open_source(const std::string& mountpoint, const BindId& mount, const std::string& name,
                       const std::optional<PlaceUser>& user) {
  INDUCTORFS_TRY_ASSIGN(auto at, open_mount(mountpoint, mount));
  struct stat root {};
  if (::fstat(at.get(), &root) != 0) return fail_errno("stat", mountpoint);
  const PlaceUser owner{root.st_uid, root.st_gid};
  const PlaceUser reader = user.value_or(owner);
  if (owner.uid != 0 && owner.uid != reader.uid) {  // what the cluster has is shown as the owner's
    return fail(ErrorCode::kNotPermitted, mountpoint + " belongs to the user " + std::to_string(owner.uid) +
                                              ", who would write what the user " + std::to_string(reader.uid) +
                                              " takes for its own: name a place of the mount's owner");
  }
  size_t from = 0;
  while (from < name.size()) {
    const size_t end = std::min(name.find('/', from), name.size());
    const std::string path = mountpoint + "/" + name.substr(0, end);
    const bool last = end == name.size();
    const mode_t mode = root.st_mode & kPermissions & ~(last ? kOthersWrite : 0);
    INDUCTORFS_TRY_ASSIGN(
        auto next, open_or_make(at, mount.mount, name.substr(from, end - from), last ? reader : owner, mode, path));
    at = std::move(next);
    if (last) INDUCTORFS_TRY(close_to_others(at, reader, path));
    from = end + 1;
  }
  return at;
}

Result<Fd> open_users_source(const std::string& mountpoint, const BindId& mount, std::string_view name,
                             const PlaceUser& user) {
  INDUCTORFS_TRY_ASSIGN(auto at, open_mount(mountpoint, mount));
  std::string path = mountpoint;
  while (!name.empty()) {
    const std::string part(take_part(name, '/'));
    path += "/" + part;
    {
      const ActingAs acting(user.uid, user.gid);
      if (acting.works()) (void)::mkdirat(at.get(), part.c_str(), kUsersMode);  // the next call tells
    }
    Fd next(::openat(at.get(), part.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!next) return fail_errno("open", path);
    INDUCTORFS_TRY_ASSIGN(const auto found, mount_id_of(next));
    struct stat status {};
    if (::fstat(next.get(), &status) != 0) return fail_errno("stat", path);
    if (found != mount.mount || status.st_uid != user.uid) {
      return fail(ErrorCode::kNotPermitted, path + " is not the user's own: remove it");
    }
    at = std::move(next);
  }
  INDUCTORFS_TRY(close_to_others(at, user, path));
  return at;
}

Result<std::set<uid_t>> owners_in(const std::string& mountpoint, const BindId& mount) {
  INDUCTORFS_TRY_ASSIGN(const auto root, open_mount(mountpoint, mount));
  Fd listing(::openat(root.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!listing) return fail_errno("open", mountpoint);
  const std::unique_ptr<DIR, int (*)(DIR*)> names(::fdopendir(listing.get()), ::closedir);
  if (!names) return fail_errno("list", mountpoint);
  (void)listing.release();
  std::set<uid_t> owners;
  for (int count = 0; count < kMostNames; ++count) {
    const dirent* const entry = ::readdir(names.get());
    if (entry == nullptr) break;
    struct stat found {};
    const bool is_directory = entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN;
    if (!is_directory || ::fstatat(root.get(), entry->d_name, &found, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (S_ISDIR(found.st_mode) && found.st_uid != 0) owners.insert(found.st_uid);
  }
  return owners;
}

}  // namespace inductorfs::places
