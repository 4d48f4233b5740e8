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
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/handle.h"
#include "inductorfs/base/log.h"
#include "inductorfs/control/control.h"
#include "inductorfs/control/socket.h"
#include "inductorfs/fuse/session.h"
#include "inductorfs/places/also.h"
#include "inductorfs/places/own_mounts.h"
#include "walk.h"

namespace inductorfs::places {
namespace {

constexpr Milliseconds kTouchPatience{2000};
constexpr int kDeadMark = 3;
/// More layers than this at one mountpoint are nothing that daemons of ours made.
constexpr int kMostLayers = 16;

bool is_served(const std::string& path) {
  return control::is_listening(config::runtime_directory(::geteuid(), config::process_environment()) + "/" +
                               config::socket_name(path));
}

/// The program's name and its first two arguments; nothing for a process that has gone, a zombie too.
std::vector<std::string> command_of(const std::string& pid) {
  constexpr uint64_t kCommandLimit = 2 * PATH_MAX;
  const Result<std::string> text = read_file(AT_FDCWD, "/proc/" + pid + "/cmdline", kCommandLimit);
  std::vector<std::string> words;
  for (size_t at = 0; text && at < text->size() && words.size() < 3;) {
    const size_t end = std::min(text->find('\0', at), text->size());
    if (end > at) words.push_back(text->substr(at, end - at));  // a messenger's name is shorter than the one it had
    at = end + 1;
  }
  if (!words.empty()) words[0].erase(0, words[0].rfind('/') + 1);
  return words;
}

enum class Part { kNone, kSupervisor, kWorker, kMessenger };

/// What a process with this command does for the mount at `path`.
Part part_of(const std::vector<std::string>& words, const std::string& path) {
  const auto has = [&](size_t at) { return words.size() > at && words[at] == path; };
  if (has(1) && words[0] == "inductorfs-supervisor") return Part::kSupervisor;
  if (has(1) && words[0] == "inductorfs-messenger") return Part::kMessenger;
  return has(2) && words[1] == "worker" ? Part::kWorker : Part::kNone;
}

/// Whether the process is root's or the mount's owner's. Anybody can give a process any command line. The real uid
/// counts too: what a user starts from a set-user-id program is root's by its effective uid, and by its place in /proc.
bool may_be_of_mount(const std::string& pid, uid_t owner) {
  constexpr uint64_t kStatusLimit = 64ULL << 10;
  constexpr std::string_view kKey = "\nUid:";
  const Result<std::string> text = read_file(AT_FDCWD, "/proc/" + pid + "/status", kStatusLimit);
  const size_t at = text ? text->find(kKey) : std::string::npos;
  if (at == std::string::npos) return false;
  unsigned real = 0;
  unsigned effective = 0;
  unsigned saved = 0;
  if (std::sscanf(text->c_str() + at + kKey.size(), "%u %u %u", &real, &effective, &saved) != 3) return false;
  const auto fits = [owner](unsigned uid) { return uid == 0 || uid == owner; };
  return fits(real) && fits(effective) && fits(saved);
}

/// Calls `look(task, part)` for the processes of the mount that are seen here, until it answers false. `task` is the
/// place below /proc of the process, or of the thread that still shows what the process no longer does.
template <typename Look>
void look_at_processes(const std::string& path, uid_t owner, Look&& look) {
  const Handle<DIR, ::closedir> proc(::opendir("/proc"));
  while (const dirent* item = proc ? ::readdir(proc.get()) : nullptr) {
    const std::string pid(item->d_name);
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    std::string task = pid;
    Part part = part_of(command_of(pid), path);
    // One that was killed shows its command no more while a thread of it still waits in the kernel; the thread does.
    const Handle<DIR, ::closedir> threads(part == Part::kNone ? ::opendir(("/proc/" + pid + "/task").c_str())
                                                              : nullptr);
    while (const dirent* thread = threads ? ::readdir(threads.get()) : nullptr) {
      if (thread->d_name == pid || part != Part::kNone) continue;
      task = pid + "/task/" + thread->d_name;
      part = part_of(command_of(task), path);
    }
    if (part != Part::kNone && may_be_of_mount(task, owner) && !look(task, part)) return;
  }
}

/// Told by the messenger that is there (src/supervisor/messenger.h), because processes that are not seen may be in
/// another PID namespace.
bool only_messenger_is_left(const MountEntry& mount) {
  bool messenger = false;
  bool others = false;
  look_at_processes(mount.mount_point, fuse_user_of(mount).value_or(0), [&](const std::string&, Part part) {
    (part == Part::kMessenger ? messenger : others) = true;
    return !others;
  });
  return messenger && !others;
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

bool has_processes_here(const MountEntry& mount) {
  constexpr uint64_t kTableLimit = 64ULL << 20;
  bool found = false;
  look_at_processes(mount.mount_point, fuse_user_of(mount).value_or(0), [&](const std::string& task, Part) {
    const Result<std::string> text = read_file(AT_FDCWD, "/proc/" + task + "/mountinfo", kTableLimit);
    found = text && find_mount_by_id(parse_mount_table(*text), mount.id) != nullptr;
    return !found;
  });
  return found;
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

bool end_waits_without_daemon(const MountEntry& mount) {
  if (!only_messenger_is_left(mount)) return false;
  fuse::end_waits(mount);  // a user's requests wait on: it is root's to end them
  return true;
}

Result<void> free_mountpoint(const std::string& path) {
  for (int layer = 0; layer < kMostLayers; ++layer) {
    const std::vector<MountEntry> table = read_mount_table();
    const MountEntry* top = find_mount_at(table, path);
    if (top == nullptr) return {};
    const bool held = top->is_ours() && !is_served(path) && end_waits_without_daemon(*top);
    const bool living = !top->is_ours() || is_served(path) || (!held && !is_dead_mount(path));
    if (living && !top->is_ours()) {
      return fail(ErrorCode::kBusy, "another file system (" + top->type + ") is mounted there: " + path +
                                        ": name a directory below it, as " + path + "/inductorfs, or unmount it first");
    }
    if (living && !is_served(path) && !has_processes_here(*top)) {
      return fail(ErrorCode::kBusy,
                  "an inductorfs mount is there, which is served from outside of this container or mount namespace: " +
                      path + ": let jobs use it as it is; status and the other commands answer where it was mounted");
    }
    if (living) {
      return fail(ErrorCode::kBusy,
                  "already mounted (" + top->type + "): " + path + ": unmount it first, or mount at another directory");
    }
    log::info("places.dead_mount_replaced", {{"mountpoint", path}});
    const std::string device = top->device;
    INDUCTORFS_TRY(unmount_if_there(path, {top->id, device}, true));  // to end the waits may have been enough
    detach_binds_of(device);
  }
  return fail(ErrorCode::kBusy, "too many mounts: " + path + ": unmount them first");
}

Result<void> check_outside_of_mounts(const std::string& what, const std::string& path) {
  std::array<char, PATH_MAX> real{};
  for (std::string at = path; ::realpath(at.c_str(), real.data()) == nullptr;) {
    if (errno != ENOENT || at.size() <= 1) return {};  // whoever uses it says what is wrong with it
    at.resize(std::max<size_t>(at.rfind('/'), 1));
  }
  const std::vector<MountEntry> table = read_mount_table();
  const MountEntry* around = find_mount_of(table, real.data());
  if (around == nullptr || !around->is_ours()) return {};
  return fail(ErrorCode::kInvalid, what + " must not lie in an inductorfs mount: " + path + " lies in " +
                                       around->mount_point + ": name a directory outside of it");
}

Result<void> check_can_hold_files(const std::string& what, const std::string& path) {
  constexpr std::array<std::string_view, 14> kMadeUp = {"proc",    "sysfs",   "cgroup",      "cgroup2",    "devpts",
                                                        "debugfs", "tracefs", "configfs",    "securityfs", "pstore",
                                                        "bpf",     "mqueue",  "binfmt_misc", "efivarfs"};
  std::array<char, PATH_MAX> real{};
  std::string at = path;
  while (::realpath(at.c_str(), real.data()) == nullptr) {
    if ((errno != ENOENT && errno != ENOTDIR) || at.size() <= 1) return {};  // whoever uses it says what is wrong
    at.resize(std::max<size_t>(at.rfind('/'), 1));
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

}  // namespace

Result<std::string> resolve_mountpoint(const std::string& path) {
  if (const auto real = follow_links(path)) {
    struct stat found {};
    if (::lstat(real->path.c_str(), &found) != 0) return real->path;  // a dead mount
    if (!S_ISDIR(found.st_mode)) {
      return fail(ErrorCode::kNotDirectory, "the mountpoint is no directory: " + path + ": name an empty directory");
    }
    for (const auto& [link, user] : real->links) {
      if (::geteuid() != 0 || user == found.st_uid) continue;
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
  struct stat found {};
  const bool is_there = ::stat(mountpoint.c_str(), &found) == 0;
  if (!is_there && errno == ENOENT) {
    return fail(ErrorCode::kNotFound,
                "the mountpoint was removed while this command ran: " + mountpoint + ": try again");
  }
  if (!is_there) return fail_errno("stat", mountpoint);
  if (::geteuid() != 0) return config::Ownership{::geteuid(), ::getegid(), found.st_mode & 07777U};
  return config::Ownership{found.st_uid, found.st_gid, found.st_mode & 07777U};
}

Result<Fd> open_mountpoint(const std::string& path, const config::Ownership& looked_at) {
  Result<Step> at = open_path(path);
  if (!at) return fail(std::move(at).error().with_context("mountpoint"));
  struct stat found {};
  if (::fstat(at->fd.get(), &found) != 0) return fail_errno("stat", path);
  const bool same = S_ISDIR(found.st_mode) && found.st_uid == looked_at.uid && found.st_gid == looked_at.gid &&
                    (found.st_mode & 07777U) == looked_at.mode;
  if (same) return std::move(at->fd);
  return fail(ErrorCode::kNotPermitted,
              "the mountpoint was replaced, or its owner or mode changed, during the mount: " + path +
                  ": check who may write to the directories above it, and try again");
}

}  // namespace inductorfs::places
