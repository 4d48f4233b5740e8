// SPDX-License-Identifier: Apache-2.0
#include "mount/processes/own_messenger.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/log.h"
#include "inductorfs/supervisor/notices.h"

namespace inductorfs::mount {
namespace {

constexpr std::chrono::seconds kLeastLife{1};

}  // namespace

bool OwnMessenger::renew() {
  const SteadyTime now = std::chrono::steady_clock::now();
  if (now - std::exchange(renewed_, now) < kLeastLife) return false;
  if (pid_ > 0) (void)::waitpid(pid_, nullptr, WNOHANG);  // a zombie at worst, until this process ends
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) return false;
  const Fd in(ends[0]);
  const Fd out(ends[1]);
  // No program: a worker may start none. Its signal mask is the worker's threads': the end of the worker is its end,
  // not a signal.
  pid_ = ::fork();
  if (pid_ == 0) supervisor::be_messenger(device_, in.get());
  if (pid_ < 0 || ::dup3(out.get(), notices_, O_CLOEXEC) < 0) return false;
  log::warning("mount.messenger_started", {{"why", "the supervisor and its messenger are gone"}});
  return true;
}

}  // namespace inductorfs::mount
