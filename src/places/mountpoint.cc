// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/places/mountpoint.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "covered.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/handle.h"
#include "inductorfs/base/log.h"
#include "inductorfs/base/text.h"
#include "inductorfs/control/control.h"
#include "inductorfs/control/socket.h"
#include "inductorfs/fuse/session.h"
#include "inductorfs/places/also.h"
#include "inductorfs/places/own_mounts.h"
#include "inductorfs/places/place.h"
#include "walk.h"

namespace inductorfs::places {
namespace {

constexpr Milliseconds kTouchPatience{2000};
constexpr int kDeadMark = 3;
/// More layers than this at one mountpoint are nothing that daemons of ours made.
constexpr int kMostLayers = 16;
constexpr mode_t kPermissions = 07777;
constexpr mode_t kPrivate = 0700;
/// Of names that one mount moves.
constexpr size_t kMostLeftOver = 10'000;

bool is_served(const std::string& path) {
  return control::is_served(config::runtime_directory(::geteuid(), config::process_environment()) + "/" +
                            config::socket_name(path));
}

}  // namespace

bool is_dead_mount(const std::string& path) {
  const pid_t child = ::fork();
  if (child < 0) return false;
  if (child == 0) {
    struct statfs found {};
    ::_exit(::statfs(path.c_str(), &found) != 0 && errno == ENOTCONN ? kDeadMark : 0);
  }
  const Fd handle(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  if (!handle || !control::wait_for(handle.get(), POLLIN, Deadline::after(kTouchPatience))) {
    (void)::kill(child, SIGKILL);  // and no wait: in the kernel's hands it may stay for long
    return false;
  }
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == kDeadMark;
}

Result<BindId> find_own_mount(const std::string& mountpoint, uint64_t id) {
  const std::vector<MountEntry> table = read_mount_table();
  const MountEntry* const top = find_mount_at(table, mountpoint);
  const bool is_ours = top != nullptr && top->is_ours() && top->root == "/";
  const bool is_users = is_ours && ::geteuid() == 0 && fuse_user_of(*top).value_or(0) != 0;
  if (is_ours && !is_users && (id == 0 || top->id == id)) return BindId{top->id, top->device};
  const MountEntry* const elsewhere = id == 0 ? nullptr : find_mount_by_id(table, id);
  if (elsewhere != nullptr) (void)fuse::unmount(*elsewhere, true);  // what follows is the error to tell
  return fail(
      ErrorCode::kNotPermitted,
      "the mountpoint no longer leads to the new mount: " + mountpoint +
          ": another user may have renamed a directory above it; check who owns these directories, and try again");
}

Result<void> unmount_if_there(const std::string& path, const BindId& mount, bool lazy) {
  const std::vector<MountEntry> table = read_mount_table();
  const MountEntry* const there = mount.mount == 0 ? nullptr : find_mount_by_id(table, mount.mount);
  // The kernel gives both numbers to the next mount, so the path counts too.
  if (there == nullptr || there->device != mount.device || there->mount_point != path) return {};
  Result<void> done = fuse::unmount(*there, lazy);
  if (!done && done.error().code() == ErrorCode::kNotFound) return {};  // somebody else did it
  return done;
}

bool detach_dead_mounts(const std::string& path) {
  for (int layer = 0; layer < kMostLayers; ++layer) {
    const std::vector<MountEntry> table = read_mount_table();
    const MountEntry* const top = find_mount_at(table, path);
    if (top == nullptr || !top->is_ours() || !is_dead_mount(path)) return layer > 0;
    // If that fails, the next mount or unmount tries it again.
    if (!unmount_if_there(path, {top->id, top->device}, true)) return layer > 0;
    detach_binds_of(top->device, path);
  }
  return true;
}

Result<bool> free_mountpoint(const std::string& path) {
  bool uncovered = false;
  for (int layer = 0; layer < kMostLayers; ++layer) {
    const std::vector<MountEntry> table = read_mount_table();
    const MountEntry* top = find_mount_at(table, path);
    if (top == nullptr) return uncovered;
    const bool served = top->is_ours() && is_served(path);
    const bool held = top->is_ours() && !served && end_waits_without_daemon(*top);
    // Held up for an ordinary user, it would only hold up whoever asks it.
    const bool may_ask = top->is_ours() && !served && (!held || ::geteuid() == 0);
    const bool dead = may_ask && is_dead_mount(path);
    const bool living = !held && !dead;
    if (living && !top->is_ours()) {
      return fail(ErrorCode::kBusy, "another file system (" + top->type + ") is mounted there: " + path +
                                        ": name a directory below it, as " + path + "/inductorfs, or unmount it first");
    }
    if (living && !served && !has_processes_here(*top)) {
      return fail(ErrorCode::kBusy,
                  "an inductorfs mount is there, which is served from outside of this container or mount namespace: " +
                      path + ": let jobs use it as it is; status and the other commands answer where it was mounted");
    }
    if (living) {
      return fail(ErrorCode::kBusy,
                  "already mounted (" + top->type + "): " + path + ": unmount it first, or mount at another directory");
    }
    const auto is_there = [&](const MountEntry& entry) { return entry.mount_point == path; };
    uncovered = std::ranges::count_if(table, is_there) == 1;
    if (uncovered && dead) return false;
    log::info("places.dead_mount_replaced", {{"mountpoint", path}});
    const std::string device = top->device;
    INDUCTORFS_TRY(unmount_if_there(path, {top->id, device}, true));  // to end the waits may have been enough
    detach_binds_of(device, path);
  }
  return fail(ErrorCode::kBusy, "too many mounts: " + path + ": unmount them first");
}

namespace {

Result<void> check_outside(const std::string& what, const std::string& path, bool may_be_covered) {
  std::array<char, PATH_MAX> real{};
  for (std::string at = path; ::realpath(at.c_str(), real.data()) == nullptr;) {
    if (errno != ENOENT || at.size() <= 1) return {};  // whoever uses it says what is wrong with it
    at = directory_of(at);
  }
  std::vector<MountEntry> table = read_mount_table();
  if (may_be_covered) std::erase_if(table, [&](const MountEntry& entry) { return entry.mount_point == path; });
  const MountEntry* around = find_mount_of(table, real.data());
  if (around == nullptr || !around->is_ours()) return {};
  return fail(ErrorCode::kInvalid, what + " must not lie in an inductorfs mount: " + path + " lies in " +
                                       around->mount_point + ": name a directory outside of it");
}

}  // namespace

Result<void> check_outside_of_mounts(const std::string& what, const std::string& path) {
  return check_outside(what, path, false);
}

Result<void> check_mountpoint_outside_of_mounts(const std::string& mountpoint) {
  return check_outside("the mountpoint", mountpoint, true);
}

Result<void> check_can_hold_files(const std::string& what, const std::string& path) {
  constexpr std::array<std::string_view, 14> kMadeUp = {"proc",    "sysfs",   "cgroup",      "cgroup2",    "devpts",
                                                        "debugfs", "tracefs", "configfs",    "securityfs", "pstore",
                                                        "bpf",     "mqueue",  "binfmt_misc", "efivarfs"};
  std::array<char, PATH_MAX> real{};
  std::string at = path;
  while (::realpath(at.c_str(), real.data()) == nullptr) {
    if ((errno != ENOENT && errno != ENOTDIR) || at.size() <= 1) return {};  // whoever uses it says what is wrong
    at = directory_of(at);
  }
  struct stat found {};
  if (::stat(real.data(), &found) == 0 && !S_ISDIR(found.st_mode)) {
    return fail(ErrorCode::kInvalid,
                what + " " + path + " cannot be made: " + at + " is no directory: name a directory on a local disk");
  }
  const std::vector<MountEntry> table = read_mount_table();
  const MountEntry* around = find_mount_of(table, real.data());
  if (around == nullptr || std::ranges::find(kMadeUp, around->type) == kMadeUp.end()) return {};
  return fail(ErrorCode::kInvalid, what + " " + path + " cannot be made: it would lie on " + around->mount_point +
                                       ", which is of the type " + around->type +
                                       " and stores no files: name a directory on a local disk");
}

namespace {

/// A path without symbolic links, and the links of users other than root and this one that led there.
struct Followed {
  std::string path;
  std::vector<std::pair<std::string, uid_t>> links;
};

/// As realpath(3), whose errno it leaves too.
std::optional<Followed> follow_links(const std::string& path) {
  constexpr int kMostLinks = 40;  // as many as the kernel follows
  Followed result;
  std::string rest = path;
  for (int links = 0; !rest.empty();) {
    const size_t end = std::min(rest.find('/'), rest.size());
    const std::string name = rest.substr(0, end);
    rest.erase(0, end + 1);
    if (name.empty() || name == ".") continue;
    const std::string at = name == ".." ? result.path.substr(0, result.path.rfind('/')) : result.path + "/" + name;
    std::array<char, PATH_MAX> target{};
    // A question that no dead mount is asked, unlike lstat(2).
    const ssize_t size = ::readlink(at.empty() ? "/" : at.c_str(), target.data(), target.size());
    if (size < 0 && errno != EINVAL) return std::nullopt;
    if (size < 0) {
      result.path = at;
      continue;
    }
    struct stat found {};
    if (::lstat(at.c_str(), &found) != 0) return std::nullopt;
    if (++links > kMostLinks) errno = ELOOP;
    if (links > kMostLinks) return std::nullopt;
    if (found.st_uid != 0 && found.st_uid != ::geteuid()) result.links.emplace_back(at, found.st_uid);
    if (target[0] == '/') result.path.clear();
    rest.insert(0, std::string(target.data(), static_cast<size_t>(size)) + "/");
  }
  if (result.path.empty()) result.path = "/";
  return result;
}

/// What a mount over a directory shows, or over the one that a mount of ours covers; asks nothing of that mount.
/// Without the right to look below it: what the kernel has kept of the mount's root, no permission of anybody if that
/// is nothing.
Result<struct stat> stat_directory(const std::string& path) {
  struct stat found {};
  const std::vector<MountEntry> table = read_mount_table();
  const MountEntry* const top = find_mount_at(table, path);
  const bool is_covered = top != nullptr && top->is_ours();
  Result<Covered> covered = is_covered ? open_covered(path) : Covered{};
  if (!is_covered) {
    INDUCTORFS_TRY_ASSIGN(covered->directory, open_at(AT_FDCWD, path, O_PATH | O_NOFOLLOW));
  }
  if (covered) {
    if (::fstat(covered->directory.get(), &found) != 0) return fail_errno("stat", path);
    if (::geteuid() == 0) (void)show_kept(covered->directory, found);  // what it was before shows as well
    return found;
  }
  struct statx kept {};
  constexpr int kKept = AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC;
  if (::statx(AT_FDCWD, path.c_str(), kKept, STATX_TYPE | STATX_MODE | STATX_UID | STATX_GID, &kept) != 0) {
    return fail_errno("stat", path);
  }
  found.st_mode = kept.stx_mode;
  found.st_uid = kept.stx_uid;
  found.st_gid = kept.stx_gid;
  return found;
}

}  // namespace

Result<std::string> resolve_mountpoint(const std::string& path) {
  if (const auto real = follow_links(path)) {
    const Result<struct stat> found = stat_directory(real->path);
    if (!found) return real->path;  // whoever uses it says what is wrong with it
    if (!S_ISDIR(found->st_mode)) {
      return fail(ErrorCode::kNotDirectory, "the mountpoint is no directory: " + path + ": name an empty directory");
    }
    for (const auto& [link, user] : real->links) {
      if (::geteuid() != 0 || user == found->st_uid) continue;
      return fail(ErrorCode::kNotPermitted, link + " is a symbolic link of the user " + std::to_string(user) +
                                                ", and does not lead to a directory of that user: name the mountpoint "
                                                "without it (" +
                                                real->path + ")");
    }
    return real->path;
  }
  if (errno == ENOENT) {
    return fail(ErrorCode::kNotFound, "the mountpoint does not exist: " + path + ": make it with mkdir -p");
  }
  if (errno == ENOTDIR) {
    return fail(ErrorCode::kNotDirectory,
                "the mountpoint is below something that is no directory: " + path + ": name an empty directory");
  }
  return fail(error_from_errno(errno, "mountpoint", path));
}

Result<config::Ownership> ownership_of(const std::string& mountpoint) {
  Result<struct stat> found = stat_directory(mountpoint);
  const bool unknown = !found || (found->st_mode & kPermissions) == 0;
  const bool uncovered = unknown && detach_dead_mounts(mountpoint);
  if (uncovered) found = stat_directory(mountpoint);
  if (!found && found.error().code() == ErrorCode::kNotFound) {
    return fail(ErrorCode::kNotFound,
                "the mountpoint was removed while this command ran: " + mountpoint + ": try again");
  }
  if (!found) return fail(found.error());
  if (::geteuid() != 0) return config::Ownership{::geteuid(), ::getegid(), found->st_mode & kPermissions, uncovered};
  return config::Ownership{found->st_uid, found->st_gid, found->st_mode & kPermissions, uncovered};
}

namespace {

/// Opens what a dead mount of ours covers, and leaves that there; if this process cannot, it detaches the mount.
Result<Mountpoint> open_below_dead(const std::string& path) {
  Mountpoint place;
  const std::vector<MountEntry> table = read_mount_table();
  const MountEntry* const top = find_mount_at(table, path);
  if (top == nullptr || !top->is_ours() || !is_dead_mount(path)) return place;
  log::info("places.dead_mount_replaced", {{"mountpoint", path}});
  if (Result<Covered> covered = open_covered(path); covered && ::geteuid() == 0) {
    INDUCTORFS_TRY_ASSIGN(place.dead, open_at(AT_FDCWD, path, O_PATH | O_DIRECTORY | O_NOFOLLOW));
    INDUCTORFS_TRY_ASSIGN(const auto id, mount_id_of(place.dead));
    if (id != top->id)
      return fail(ErrorCode::kBusy, "the mountpoint changed during the mount: " + path + ": try again");
    place.at = std::move(*covered);
    place.device = top->device;
    return place;
  }
  INDUCTORFS_TRY(unmount_if_there(path, {top->id, top->device}, true));
  detach_binds_of(top->device, path);
  place.uncovered = true;
  return place;
}

}  // namespace

Result<Mountpoint> open_mountpoint(const std::string& path, const config::Ownership& looked_at) {
  INDUCTORFS_TRY_ASSIGN(auto place, open_below_dead(path));
  place.uncovered = place.uncovered || looked_at.uncovered;
  const bool root = ::geteuid() == 0;
  const auto open = [root](const std::string& at) -> Result<Fd> {
    if (!root) return open_at(AT_FDCWD, at, O_PATH | O_DIRECTORY);
    Result<Step> step = open_path(at);
    if (!step) return fail(std::move(step).error().with_context("mountpoint"));
    return std::move(step->fd);
  };
  if (!place.dead) {
    INDUCTORFS_TRY_ASSIGN(place.at.around, open(directory_of(path)));
    INDUCTORFS_TRY_ASSIGN(place.at.directory, open(path));
  }
  if (!root) return place;
  struct stat found {};
  if (::fstat(place.at.directory.get(), &found) != 0) return fail_errno("stat", path);
  place.was_covered = show_kept(place.at.directory, found);
  const bool same = S_ISDIR(found.st_mode) && found.st_uid == looked_at.uid && found.st_gid == looked_at.gid &&
                    (found.st_mode & kPermissions) == looked_at.mode;
  if (same) return place;
  return fail(ErrorCode::kNotPermitted,
              "the mountpoint was replaced, or its owner or mode changed, during the mount: " + path +
                  ": check who may write to the directories above it, and try again");
}

void close_below(const Mountpoint& place, const std::string& path, const config::Ownership& shown) {
  if (::geteuid() != 0) return;
  const Result<void> closed = close_covered(place.at.directory, shown);
  const bool others_write = (shown.mode & (S_IWGRP | S_IWOTH)) != 0 || shown.uid != 0;
  if (closed || !others_write) return;
  log::info("places.mountpoint_open", {{"mountpoint", path}, {"why", closed.error().to_string()}});
}

std::string move_left_over(const Mountpoint& place, const std::string& path) {
  std::vector<std::string> names;
  const Handle<DIR, ::closedir> directory(::opendir(through_descriptor(place.at.directory).c_str()));
  while (const dirent* item = directory && names.size() < kMostLeftOver ? ::readdir(directory.get()) : nullptr) {
    const std::string_view name = item->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (names.empty()) return {};
  const std::string aside = std::string(base_name_of(path)) + ".left-over-" + std::to_string(::time(nullptr)) + "-" +
                            std::to_string(::getpid());
  const bool made = ::mkdirat(place.at.around.get(), aside.c_str(), kPrivate) == 0;
  const Fd target(made ? ::openat(place.at.around.get(), aside.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                       : -1);
  size_t moved = 0;
  for (const std::string& name : names) {
    if (target && ::renameat(place.at.directory.get(), name.c_str(), target.get(), name.c_str()) == 0) ++moved;
  }
  const std::string beside = path.substr(0, path.rfind('/') + 1) + aside;
  std::string text = "while no daemon served, jobs wrote into the directory below the mount " + path + " (" +
                     (names.size() < kMostLeftOver ? "" : "at least ") + std::to_string(names.size()) +
                     " names, one is " + config::printable(names.front()) + "): ";
  if (moved > 0) text += std::to_string(moved) + " are in " + beside + " now, remove that when no job needs it";
  if (moved == 0 && made) (void)::unlinkat(place.at.around.get(), aside.c_str(), AT_REMOVEDIR);
  if (moved > 0 && moved < names.size()) text += "; ";
  if (moved < names.size()) {
    text += std::to_string(names.size() - moved) + " could not be moved and are hidden: unmount, and move them away";
  }
  return text;
}

}  // namespace inductorfs::places
