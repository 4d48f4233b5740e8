// SPDX-License-Identifier: Apache-2.0
// The processes of a mount's daemon, as /proc shows them here.
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <string_view>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/handle.h"
#include "inductorfs/base/number.h"
#include "inductorfs/base/process_start.h"
#include "inductorfs/base/text.h"
#include "inductorfs/config/worker_user.h"
#include "inductorfs/control/socket.h"
#include "inductorfs/fuse/session.h"
#include "inductorfs/places/mountpoint.h"

namespace inductorfs::places {
namespace {

/// For a process that has been killed to end.
constexpr Milliseconds kEndPatience{2000};

/// The program's name and its first two arguments; nothing for a process that has gone, a zombie too.
std::vector<std::string> command_of(const std::string& pid) {
  constexpr uint64_t kCommandLimit = 2 * PATH_MAX;
  const Result<std::string> text = read_file(AT_FDCWD, "/proc/" + pid + "/cmdline", kCommandLimit);
  std::vector<std::string> words;
  for (const std::string_view word : parts_of(text ? *text : std::string_view(), '\0')) {
    if (!word.empty() && words.size() < 3) words.emplace_back(word);  // a messenger's name is shorter than it was
  }
  if (!words.empty()) words[0].erase(0, words[0].rfind('/') + 1);
  return words;
}

constexpr uint64_t kNameLimit = 64;

enum class Part { kNone, kSupervisor, kWorker, kMessenger };

/// A worker's own messenger has the worker's command, and this name (supervisor/notices.h).
bool is_named_messenger(const std::string& task) {
  return read_file(AT_FDCWD, "/proc/" + task + "/comm", kNameLimit).value_or("") == "inductorfs-mess\n";
}

/// What this process does for the mount at `path`.
Part part_of(const std::string& task, const std::string& path) {
  const std::vector<std::string> words = command_of(task);
  const auto has = [&](size_t at) { return words.size() > at && words[at] == path; };
  if (has(1) && words[0] == "inductorfs-supervisor") return Part::kSupervisor;
  if (has(1) && words[0] == "inductorfs-messenger") return Part::kMessenger;
  if (!has(2) || words[1] != "worker") return Part::kNone;
  return is_named_messenger(task) ? Part::kMessenger : Part::kWorker;
}

/// Whether the process is root's, the mount's owner's, or of the user who serves root's mounts. Anybody can give a
/// process any command line. The real uid counts too: what a user starts from a set-user-id program is root's by its
/// effective uid, and by its place in /proc.
bool may_be_of_mount(const std::string& pid, uid_t owner) {
  constexpr uint64_t kStatusLimit = 64ULL << 10;
  const Result<std::string> text = read_file(AT_FDCWD, "/proc/" + pid + "/status", kStatusLimit);
  std::vector<std::string_view> uids = parts_of(text ? line_in_status(*text, "Uid") : std::string_view(), '\t');
  uids.resize(3);  // the real, the effective and the saved one
  return std::ranges::all_of(uids, [owner](std::string_view one) {
    const auto uid = number_in<uid_t>(one);
    return uid && (*uid == 0 || *uid == owner || (owner == 0 && config::is_worker_user(*uid)));
  });
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
    Part part = part_of(pid, path);
    // One that was killed shows its command no more while a thread of it still waits in the kernel; the thread does.
    const Handle<DIR, ::closedir> threads(part == Part::kNone ? ::opendir(("/proc/" + pid + "/task").c_str())
                                                              : nullptr);
    while (const dirent* thread = threads ? ::readdir(threads.get()) : nullptr) {
      if (thread->d_name == pid || part != Part::kNone) continue;
      task = pid + "/task/" + thread->d_name;
      part = part_of(task, path);
    }
    if (part != Part::kNone && may_be_of_mount(task, owner) && !look(task, part)) return;
  }
}

/// Waits for the end of the process of this place below /proc: where nobody answers, it may have been killed just now.
bool ends_by(const std::string& task, Deadline deadline) {
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, std::stoi(task), 0)));
  return process ? control::wait_for(process.get(), POLLIN, deadline) : errno == ESRCH;
}

/// Told by the messenger that is there (src/supervisor/messenger.h), because processes that are not seen may be in
/// another PID namespace.
bool only_messenger_is_left(const MountEntry& mount) {
  bool messenger = false;
  bool others = false;
  const Deadline deadline = Deadline::after(kEndPatience);
  look_at_processes(mount.mount_point, fuse_user_of(mount).value_or(0), [&](const std::string& task, Part part) {
    if (part == Part::kMessenger) messenger = true;
    if (part != Part::kMessenger) others = !ends_by(task, deadline);
    return !others;
  });
  return messenger && !others;
}

}  // namespace

std::string tree_source() {
  std::array<char, 64> space{};  // "mnt:[4026531840]"
  // Without /proc nobody is found here by it either.
  (void)::readlink("/proc/self/ns/mnt", space.data(), space.size() - 1);
  return "inductorfs-tree:" + std::string(space.data());
}

bool has_processes_here(const MountEntry& mount) {
  constexpr uint64_t kTableLimit = 64ULL << 20;
  const std::string tree = tree_source();
  bool found = false;
  look_at_processes(mount.mount_point, fuse_user_of(mount).value_or(0), [&](const std::string& task, Part) {
    const Result<std::string> text = read_file(AT_FDCWD, "/proc/" + task + "/mountinfo", kTableLimit);
    const std::vector<MountEntry> table = text ? parse_mount_table(*text) : std::vector<MountEntry>();
    const auto is_tree = [&](const MountEntry& entry) { return entry.source == tree; };
    found = find_mount_by_id(table, mount.id) != nullptr || std::ranges::any_of(table, is_tree);
    return !found;
  });
  return found;
}

bool end_waits_without_daemon(const MountEntry& mount) {
  if (!only_messenger_is_left(mount)) return false;
  fuse::end_waits(mount);  // a user's requests wait on: it is root's to end them
  return true;
}

}  // namespace inductorfs::places
