// SPDX-License-Identifier: Apache-2.0
#include "own_messenger.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/log.h"
#include "inductorfs/mount/launch.h"
#include "inductorfs/supervisor/protocol.h"

namespace inductorfs::mount {
namespace {

constexpr std::chrono::seconds kLeastLife{1};

/// Starts `program` as the messenger with these descriptors. Returns its pid, or 0 on failure.
pid_t spawn(const std::string& program, std::string mountpoint, int device, int notices) {
  std::string name = supervisor::kMessengerName;
  const std::array<char*, 3> words{name.data(), mountpoint.data(), nullptr};
  posix_spawn_file_actions_t actions;
  if (::posix_spawn_file_actions_init(&actions) != 0) return 0;
  pid_t pid = 0;
  const bool placed = ::posix_spawn_file_actions_adddup2(&actions, device, supervisor::kMessengerDevice) == 0 &&
                      ::posix_spawn_file_actions_adddup2(&actions, notices, supervisor::kMessengerNotices) == 0;
  // Its signal mask is the worker's threads': the end of the worker is its end, not a signal.
  if (!placed || ::posix_spawn(&pid, program.c_str(), &actions, nullptr, words.data(), ::environ) != 0) pid = 0;
  (void)::posix_spawn_file_actions_destroy(&actions);
  return pid;
}

}  // namespace

bool OwnMessenger::renew() {
  const SteadyTime now = std::chrono::steady_clock::now();
  if (now - std::exchange(renewed_, now) < kLeastLife) return false;
  if (pid_ > 0) (void)::waitpid(pid_, nullptr, WNOHANG);  // a zombie at worst, until this process ends
  const Result<std::string> own = own_program();
  const Result<std::string> program = own ? find_supervisor(*own) : own;
  std::array<int, 2> ends{-1, -1};
  if (!program || ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) return false;
  const Fd in(ends[0]);
  const Fd out(ends[1]);
  pid_ = spawn(*program, mountpoint_, device_, in.get());
  if (pid_ <= 0 || ::dup3(out.get(), notices_, O_CLOEXEC) < 0) return false;
  log::warning("mount.messenger_started", {{"why", "the supervisor and its messenger are gone"}});
  return true;
}

}  // namespace inductorfs::mount
