// SPDX-License-Identifier: Apache-2.0
#include "user.h"

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdio>
#include <ctime>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/number.h"
#include "inductorfs/supervisor/protocol.h"

namespace inductorfs::supervisor {

bool parse_user(std::string_view text, WorkerIds& user) {
  const size_t first = text.find(':');
  const size_t second = text.find(':', first + 1);
  if (first == std::string_view::npos || second == std::string_view::npos) return false;
  if (!parse_number(text.substr(0, first), user.uid)) return false;
  if (!parse_number(text.substr(first + 1, second - first - 1), user.gid)) return false;
  user.group_count = 0;
  for (text.remove_prefix(second + 1); !text.empty();) {
    const std::string_view group = text.substr(0, text.find(','));
    if (user.group_count == user.groups.size()) return false;
    if (!parse_number(group, user.groups.at(user.group_count++))) return false;
    text.remove_prefix(group.size() < text.size() ? group.size() + 1 : text.size());
  }
  return user.uid != 0;
}

namespace {

/// A mount in the foreground has root's terminal. Who has it as its controlling terminal may type there (TIOCSTI), and
/// who has it open for reading sees what is typed.
/// False: it has it still.
bool leave_terminal() {
  const Fd own(::open("/dev/tty", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC));
  if (own) (void)::ioctl(own.get(), TIOCNOTTY);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::isatty(fd) == 0) continue;
    (void)::ioctl(fd, TIOCNOTTY);  // where there is no /dev/tty
    std::array<char, 32> path{};
    (void)std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", fd);
    Fd less(fd == STDIN_FILENO ? -1 : ::open(path.data(), O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC));
    if (less) (void)::fcntl(less.get(), F_SETFL, 0);  // it waited for no carrier, and waits for writers from now on
    if (!less) less.reset(::open("/dev/null", O_RDWR | O_CLOEXEC));
    if (!less || ::dup2(less.get(), fd) < 0) return false;
  }
  return true;
}

bool enter_tree() {
  if (::fcntl(kTreeFd, F_GETFD) < 0) return true;
  const bool is_in = ::setns(kTreeFd, CLONE_NEWNS) == 0;
  (void)::unshare(CLONE_NEWIPC);  // best effort: a kernel, or a unit, may have none
  (void)::close(kTreeFd);
  return is_in;
}

bool drop_rights(const WorkerIds& user) {
  return ::setgroups(user.group_count, user.groups.data()) == 0 && ::setresgid(user.gid, user.gid, user.gid) == 0 &&
         ::setresuid(user.uid, user.uid, user.uid) == 0 && ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
}

}  // namespace

bool become(const WorkerIds& user) {
  if (user.uid == 0) return true;
  return leave_terminal() && drop_rights(user);
}

void close_tree(const char* file_of_store) {
  constexpr timespec kTurn{0, 1'000'000};
  constexpr int kTurns = 1'000;
  std::array<char, PATH_MAX> store{};
  const std::string_view path(file_of_store == nullptr ? "" : file_of_store);
  const size_t size = path.rfind('/');
  if (size == std::string_view::npos || size >= store.size() || ::fcntl(kTreeFd, F_GETFD) < 0) return;
  path.copy(store.data(), size);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setns(kTreeFd, CLONE_NEWNS) == 0) (void)::umount2(store.data(), MNT_DETACH | UMOUNT_NOFOLLOW);
    ::_exit(0);
  }
  for (int i = 0; child > 0 && i < kTurns && ::waitpid(child, nullptr, WNOHANG) == 0; ++i) {
    (void)::nanosleep(&kTurn, nullptr);
  }
}

bool become_server(const WorkerIds& user) {
  if (user.uid == 0) return true;
  return leave_terminal() && enter_tree() && drop_rights(user);  // a tree has no /dev/tty
}

}  // namespace inductorfs::supervisor
