// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

#include "fusermount.h"
#include "inductorfs/base/clock.h"
#include "inductorfs/base/handle.h"
#include "inductorfs/fuse/session.h"
#include "mount_paths.h"
#include "mount_users.h"

namespace inductorfs::fuse {
namespace {

constexpr const char* kDevice = "/dev/fuse";
constexpr const char* kFileSystem = "fuse";
constexpr const char* kSubtype = "inductorfs";  // so that its type is fuse.inductorfs
constexpr unsigned kMaxRead = 1U << 20;
/// A new mount reads ahead 128 KiB at a time; a precompiled header has 150 MB.
constexpr std::string_view kReadaheadKiB = "1024";
constexpr unsigned kBeneath = 0x200;  // MOVE_MOUNT_BENEATH (linux/mount.h), Linux 6.5
constexpr Milliseconds kProbeDeadline{1'000};
constexpr Milliseconds kProbeStep{5};

/// What stat(2) says, as an errno; asked by a child process, because a mount whose daemon hangs would hang us.
/// ETIMEDOUT: it hangs.
int probe_errno(const std::string& path) {
  const pid_t child = fork();
  if (child < 0) return errno;
  if (child == 0) {
    struct stat ignored {};
    _exit(stat(path.c_str(), &ignored) == 0 ? 0 : errno);
  }
  const Deadline deadline = Deadline::after(kProbeDeadline);
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (deadline.passed()) {
      (void)kill(child, SIGKILL);              // in state D it goes when the mount does
      (void)waitpid(child, &status, WNOHANG);  // if it is gone already
      return ETIMEDOUT;
    }
    std::this_thread::sleep_for(kProbeStep);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
}

Error already_mounted(const std::string& mountpoint, const MountEntry& mount) {
  if (mount.type.starts_with("fuse")) {
    const int status = probe_errno(mountpoint);
    if (status == ENOTCONN || status == ECONNABORTED) {
      return Error(ErrorCode::kBusy, mountpoint + " holds a dead mount (" + mount.type +
                                         ": Transport endpoint is not connected); remove it with `inductorfs unmount "
                                         "--lazy " +
                                         mountpoint + "`");
    }
    if (status == ETIMEDOUT) {
      return Error(ErrorCode::kBusy, mountpoint + " holds a mount (" + mount.type +
                                         ") that does not answer; end its daemon, then `inductorfs unmount --lazy " +
                                         mountpoint + "`");
    }
  }
  return Error(ErrorCode::kBusy, mountpoint + " is a mount already (" + mount.type + " from " + mount.source +
                                     "); unmount it first with `inductorfs unmount " + mountpoint +
                                     "`, or choose another directory");
}

/// `way`: the path by which it is reached.
Result<void> check_empty(const std::string& mountpoint, const std::string& way) {
  const Handle<DIR, closedir> directory(opendir(way.c_str()));
  if (!directory) {
    if (errno == ENOENT) {
      return fail(ErrorCode::kNotFound, mountpoint + " does not exist; make it with `mkdir -p " + mountpoint + "`");
    }
    if (errno == ENOTDIR) {
      return fail(ErrorCode::kNotDirectory, mountpoint + " is not a directory; choose one, or remove it");
    }
    return fail_errno("open directory", mountpoint);
  }
  while (const dirent* item = readdir(directory.get())) {
    const std::string_view name = item->d_name;
    if (name == "." || name == "..") continue;
    return fail(ErrorCode::kNotEmpty, mountpoint + " is not empty (it holds " + std::string(name) +
                                          ", which a mount would hide); move its content away, or choose another "
                                          "directory");
  }
  return {};
}

/// Nothing when it is not there: whoever opens it says so.
Result<void> check_device() {
  constexpr unsigned kMajor = 10;  // Documentation/admin-guide/devices.txt
  constexpr unsigned kMinor = 229;
  struct stat found {};
  if (::stat(kDevice, &found) != 0) return {};
  if (S_ISCHR(found.st_mode) && major(found.st_rdev) == kMajor && minor(found.st_rdev) == kMinor) return {};
  const std::string is = S_ISCHR(found.st_mode) ? "device " + std::to_string(major(found.st_rdev)) + ":" +
                                                      std::to_string(minor(found.st_rdev)) + " instead of 10:229"
                                                : std::string("no device");
  return fail(ErrorCode::kNotSupported, std::string(kDevice) + " is not the device of FUSE: it is " + is +
                                            "; remove it and load the module with `modprobe fuse`, in a container "
                                            "start it with --device /dev/fuse");
}

Result<Fd> open_device() {
  auto device = open_at(AT_FDCWD, kDevice, O_RDWR);
  if (device) return device;
  if (device.error().code() == ErrorCode::kNotPermitted) {
    return fail(ErrorCode::kNotPermitted, std::string(kDevice) +
                                              " may not be opened; in a container start it with "
                                              "--device /dev/fuse");
  }
  return fail(ErrorCode::kNotSupported, std::string(kDevice) +
                                            " is not there; load the module with `modprobe fuse`, in a container "
                                            "start it with --device /dev/fuse");
}

/// Best effort: without it, first reads of large files are slower.
void widen_readahead(const std::string& mountpoint) {
  const auto table = read_mount_table();
  const MountEntry* const mount = find_mount_at(table, mountpoint);
  if (mount == nullptr) return;
  const auto file = open_at(AT_FDCWD, "/sys/class/bdi/" + mount->device + "/read_ahead_kb", O_WRONLY);
  if (file) (void)write_full(file->get(), kReadaheadKiB);
}

Error not_mounted(const std::string& mountpoint, int failed) {
  if (failed == EPERM || failed == EACCES) {
    return Error(ErrorCode::kNotPermitted, "mount " + mountpoint + ": " + std::strerror(failed) +
                                               "; root lacks CAP_SYS_ADMIN here: in a container start it with "
                                               "--cap-add SYS_ADMIN --device /dev/fuse");
  }
  if (failed == ENODEV) {
    return Error(ErrorCode::kNotSupported,
                 "mount " + mountpoint + ": this kernel has no FUSE; load the module with `modprobe fuse`");
  }
  return error_from_errno(failed, "mount", mountpoint);
}

/// A mount that is nowhere yet. Its number is known before anybody can move it.
Result<Fd> make_mount(const Fd& device, const std::string& mountpoint, const MountOptions& options) {
  const Fd context(::fsopen(kFileSystem, FSOPEN_CLOEXEC));
  const auto set = [&](const char* key, const std::string& value) {
    return ::fsconfig(context.get(), FSCONFIG_SET_STRING, key, value.c_str(), 0) == 0;
  };
  const auto set_flag = [&](const char* key) {
    return ::fsconfig(context.get(), FSCONFIG_SET_FLAG, key, nullptr, 0) == 0;
  };
  const bool made = context && set("source", options.source) && set("subtype", kSubtype) &&
                    set("fd", std::to_string(device.get())) && set("rootmode", "40000") &&
                    set("user_id", std::to_string(geteuid())) && set("group_id", std::to_string(getegid())) &&
                    set_flag("default_permissions") && set("max_read", std::to_string(kMaxRead)) &&
                    (!options.allow_other || set_flag("allow_other")) &&
                    ::fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) == 0;
  // Not noexec: launchers and C++ kernels are loaded from here.
  Fd mount(made ? ::fsmount(context.get(), FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV) : -1);
  if (!mount) return fail(not_mounted(mountpoint, errno));
  return mount;
}

Result<Mounted> mount_as_root(const std::string& mountpoint, const MountOptions& options) {
  INDUCTORFS_TRY_ASSIGN(auto device, open_device());
  INDUCTORFS_TRY_ASSIGN(const auto tree, make_mount(device, mountpoint, options));
  INDUCTORFS_TRY_ASSIGN(const auto id, mount_id_of(tree));
  const int place = options.dead >= 0 ? options.dead : options.directory;
  const bool open = place >= 0;
  const unsigned how = MOVE_MOUNT_F_EMPTY_PATH | (open ? MOVE_MOUNT_T_EMPTY_PATH : MOVE_MOUNT_T_SYMLINKS);
  const auto attach = [&](unsigned more) {
    return ::move_mount(tree.get(), "", open ? place : AT_FDCWD, open ? "" : mountpoint.c_str(), how | more) == 0;
  };
  const bool beneath = options.dead >= 0 && attach(kBeneath);
  if (!beneath && !attach(0)) return fail(not_mounted(mountpoint, errno));
  // By its descriptor, which leads to no other mount as long as nothing is on top of it.
  if (beneath && umount2(("/proc/self/fd/" + std::to_string(options.dead)).c_str(), MNT_DETACH) != 0) {
    return fail_errno("unmount the dead mount at", mountpoint);
  }
  widen_readahead(mountpoint);
  return Mounted{std::move(device), id};
}

/// A comma would begin another option; fusermount3 takes it behind a backslash.
std::string escaped_option(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == ',' || c == '\\') out.push_back('\\');
    out.push_back(c);
  }
  return out;
}

Result<Mounted> mount_as_user(const std::string& mountpoint, const MountOptions& options) {
  std::string text = "nosuid,nodev,default_permissions,subtype=inductorfs,fsname=" + escaped_option(options.source) +
                     ",max_read=" + std::to_string(kMaxRead);
  if (options.allow_other) text += ",allow_other";
  INDUCTORFS_TRY_ASSIGN(auto device, fusermount(mountpoint, text));
  return Mounted{std::move(device), 0};
}

Error busy(const MountEntry& mount, const std::vector<MountEntry>& table) {
  std::string who = describe_users(find_mount_users({&mount, 1}));
  for (const MountEntry& other : table) {
    if (other.mount_point == mount.mount_point || !is_within(other.mount_point, mount.mount_point)) continue;
    who += (who.empty() ? "" : ", ") + std::string("mount ") + other.mount_point + " (" + other.type + ")";
  }
  if (who.empty()) who = "somebody that /proc does not show to this user";
  return Error(ErrorCode::kBusy, mount.mount_point + " is in use by " + who +
                                     "; end that, or detach it with `inductorfs unmount --lazy " + mount.mount_point +
                                     "`");
}

/// What is at the mount's place, opened with O_PATH, and the directory that it is in.
struct Found {
  Fd parent;
  std::string name;
  Fd root;
};

/// kBusy when something else is at the place: who owns a directory around it may have exchanged that.
Result<Found> open_root_of(const MountEntry& mount) {
  const size_t slash = mount.mount_point.rfind('/');
  Found found;
  found.name = mount.mount_point.substr(slash + 1);
  INDUCTORFS_TRY_ASSIGN(
      found.parent, open_at(AT_FDCWD, mount.mount_point.substr(0, std::max<size_t>(slash, 1)), O_PATH | O_DIRECTORY));
  INDUCTORFS_TRY_ASSIGN(found.root, open_at(found.parent.get(), found.name, O_PATH | O_NOFOLLOW));
  INDUCTORFS_TRY_ASSIGN(const auto id, mount_id_of(found.root));
  if (id == mount.id) return found;
  return fail(ErrorCode::kBusy, mount.mount_point +
                                    " leads to another mount, or to none: unmount that first, or look " +
                                    "who renames the directories around it");
}

Result<void> unmount_as_root(const MountEntry& mount, bool lazy) {
  INDUCTORFS_TRY_ASSIGN(auto found, open_root_of(mount));
  std::string way = "/proc/self/fd/" + std::to_string(found.root.get());
  int flags = MNT_DETACH;  // the descriptor itself is in the way otherwise; the mount is gone when that is closed
  if (!lazy) {
    way = "/proc/self/fd/" + std::to_string(found.parent.get()) + "/" + found.name;
    flags = UMOUNT_NOFOLLOW;
    found.root.reset();
  }
  if (umount2(way.c_str(), flags) == 0) return {};
  if (errno == EBUSY) return fail(busy(mount, read_mount_table()));
  if (errno == EPERM) {
    return fail(ErrorCode::kNotPermitted, "unmount " + mount.mount_point + ": root lacks CAP_SYS_ADMIN here");
  }
  return fail_errno("unmount", mount.mount_point);
}

}  // namespace

Result<Mounted> mount(const MountOptions& options) {
  const std::string mountpoint = resolved_mountpoint(options.mountpoint);
  const auto table = options.dead >= 0 ? std::vector<MountEntry>() : read_mount_table();
  const MountEntry* const there = find_mount_at(table, mountpoint);
  if (there != nullptr) return fail(already_mounted(mountpoint, *there));
  const bool open = options.directory >= 0;
  const std::string way = open ? "/proc/self/fd/" + std::to_string(options.directory) : mountpoint;
  if (!options.may_hold_files) INDUCTORFS_TRY(check_empty(mountpoint, way));
  INDUCTORFS_TRY(check_device());
  return geteuid() == 0 ? mount_as_root(mountpoint, options) : mount_as_user(mountpoint, options);
}

Result<void> unmount(const MountEntry& mount, bool lazy) {
  if (geteuid() == 0) return unmount_as_root(mount, lazy);
  Result<void> done = fusermount_unmount(mount.mount_point, lazy);
  if (!done && done.error().code() == ErrorCode::kBusy) return fail(busy(mount, read_mount_table()));
  return done;
}

Result<void> unmount(const std::string& mountpoint, bool lazy) {
  const std::string resolved = resolved_mountpoint(mountpoint);
  const auto table = read_mount_table();
  const MountEntry* const there = find_mount_at(table, resolved);
  if (there == nullptr) return fail(ErrorCode::kNotFound, resolved + " is not a mount; nothing to do");
  return unmount(*there, lazy);
}

void end_waits(const MountEntry& mount) {
  const Result<Found> found = open_root_of(mount);
  if (!found) return;
  // It does not go, because of the descriptor; its requests end all the same.
  (void)umount2(("/proc/self/fd/" + std::to_string(found->root.get())).c_str(), MNT_FORCE);
}

MountUse mount_use(std::span<const MountEntry> mounts) {
  const MountUsers users = find_mount_users(mounts);
  if (users.found.empty()) return {};
  return {users.found.front().mount_point, describe_users(users)};
}

std::string mounted_type(const std::string& mountpoint) {
  const auto table = read_mount_table();
  const MountEntry* const there = find_mount_at(table, resolved_mountpoint(mountpoint));
  return there != nullptr ? there->type : std::string();
}

}  // namespace inductorfs::fuse
