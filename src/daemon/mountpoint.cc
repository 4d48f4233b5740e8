// SPDX-License-Identifier: Apache-2.0
#include "mountpoint.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "also.h"
#include "control.h"
#include "inductorfs/base/log.h"
#include "inductorfs/fuse/session.h"
#include "mount_table.h"
#include "socket.h"

namespace inductorfs::daemon {
namespace {

constexpr Milliseconds kTouchPatience{2000};
constexpr int kDeadMark = 3;
/// More layers than this at one mountpoint are nothing that daemons of ours made.
constexpr int kMostLayers = 16;

bool is_served(const std::string& path) {
  return is_listening(runtime_directory(::geteuid(), process_environment()) + "/" + socket_name(path));
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
  if (!handle || !wait_for(handle.get(), POLLIN, Deadline::after(kTouchPatience))) {
    (void)::kill(child, SIGKILL);  // and no wait: in the kernel's hands it may stay for long
    return false;
  }
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == kDeadMark;
}

Result<void> free_mountpoint(const std::string& path) {
  for (int layer = 0; layer < kMostLayers; ++layer) {
    const std::vector<MountEntry> table = read_mount_table();
    const MountEntry* top = find_mount_at(table, path);
    if (top == nullptr) return {};
    const bool living = !top->is_ours() || is_served(path) || !is_dead_mount(path);
    if (living) {
      return fail(ErrorCode::kBusy,
                  "already mounted (" + top->type + "): " + path + ": unmount it first, or mount at another directory");
    }
    log::info("dead_mount_replaced", {{"mountpoint", path}});
    const std::string device = top->device;
    INDUCTORFS_TRY(fuse::unmount(path, true));
    detach_binds_of(device);
  }
  return fail(ErrorCode::kBusy, "too many mounts: " + path + ": unmount them first");
}

Result<std::string> resolve_mountpoint(const std::string& path) {
  std::array<char, PATH_MAX> real{};
  if (::realpath(path.c_str(), real.data()) != nullptr) {
    struct stat found {};
    if (::stat(real.data(), &found) == 0 && !S_ISDIR(found.st_mode)) {
      return fail(ErrorCode::kNotDirectory, "the mountpoint is no directory: " + path + ": name an empty directory");
    }
    return std::string(real.data());
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

Result<Ownership> ownership_of(const std::string& mountpoint) {
  struct stat found {};
  if (::stat(mountpoint.c_str(), &found) != 0) return fail_errno("stat", mountpoint);
  if (::geteuid() != 0) return Ownership{::geteuid(), ::getegid(), found.st_mode & 07777U};
  return Ownership{found.st_uid, found.st_gid, found.st_mode & 07777U};
}

}  // namespace inductorfs::daemon
