// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/places/bind.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "walk.h"

namespace inductorfs::places {
namespace {

// Linux, include/uapi/linux/mount.h: in every kernel since 5.2, in few libraries.
constexpr unsigned kOpenTreeClone = 1;
constexpr unsigned kFromDescriptor = 0x4;
constexpr unsigned kToDescriptor = 0x40;
constexpr unsigned kBeneath = 0x200;

}  // namespace

Result<BindId> bind(const Fd& source, const Fd& place, bool beneath) {
  // The mount has a descriptor before it has a place, so that its number is known without looking for it.
  const Fd tree(static_cast<int>(
      ::syscall(SYS_open_tree, source.get(), "", kOpenTreeClone | O_CLOEXEC | static_cast<unsigned>(AT_EMPTY_PATH))));
  if (!tree) return fail_errno("open_tree");
  BindId id;
  INDUCTORFS_TRY_ASSIGN(const auto mount, mount_id_of(tree));
  id.mount = mount;
  const unsigned how = kFromDescriptor | kToDescriptor | (beneath ? kBeneath : 0);
  if (::syscall(SYS_move_mount, tree.get(), "", place.get(), "", how) != 0) return fail_errno("move_mount");
  const std::vector<MountEntry> table = read_mount_table();
  if (const MountEntry* const entry = find_mount_by_id(table, id.mount)) id.device = entry->device;
  return id;
}

bool shows_removed(const MountEntry& entry) {
  return entry.is_ours() && entry.root.ends_with("//deleted");  // so the kernel writes it
}

Result<Covered> open_covered(const std::string& path) {
  const size_t slash = path.rfind('/');
  INDUCTORFS_TRY_ASSIGN(const auto around, open_path(path.substr(0, slash)));
  Covered found;
  // A copy of the mount around it, without the mounts on top of that one.
  found.around = Fd(static_cast<int>(::syscall(SYS_open_tree, around.fd.get(), "",
                                               kOpenTreeClone | O_CLOEXEC | static_cast<unsigned>(AT_EMPTY_PATH))));
  if (!found.around) return fail_errno("open_tree", path);
  INDUCTORFS_TRY_ASSIGN(found.directory,
                        open_at(found.around.get(), path.substr(slash + 1), O_PATH | O_DIRECTORY | O_NOFOLLOW));
  return found;
}

Result<void> detach(const Fd& mount_root) {
  // Lazily, as the descriptor itself is in the way otherwise; without other users it is gone when that is closed.
  if (::umount2(through_descriptor(mount_root).c_str(), MNT_DETACH) != 0) return fail_errno("umount");
  return {};
}

Result<void> detach(const MountEntry& entry) {
  const Result<Step> at = open_path(entry.mount_point);
  if (!at && at.error().code() == ErrorCode::kNotFound) {
    return fail(ErrorCode::kNotFound, entry.mount_point + " was renamed just now");
  }
  if (!at) return fail(at.error());
  if (at->mount != entry.id) {
    return fail(ErrorCode::kBusy, entry.mount_point + " is hidden by another mount: unmount that first");
  }
  return detach(at->fd);
}

}  // namespace inductorfs::places
