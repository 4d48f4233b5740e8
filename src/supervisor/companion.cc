// SPDX-License-Identifier: Apache-2.0
#include "companion.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <string_view>

#include "inductorfs/supervisor/protocol.h"
#include "line.h"
#include "workers.h"

namespace inductorfs::supervisor {
namespace {

constexpr int kNotExecuted = 127;
constexpr Time kLeastLife = 1000;
constexpr Time kFirstPause = 100;
constexpr Time kLongestPause = 64'000;
constexpr size_t kWhyLimit = 300;
/// The mount's environment has secrets, and what it says of the mount no look needs.
constexpr const char kOwnVariables[] = "INDUCTORFS_";
constexpr size_t kMostVariables = 1024;
const char* variables[kMostVariables + 1];

/// In the child: never returns, and allocates nothing. It has its socket, what its tasks need, and nothing else of the
/// mount's.
[[noreturn]] void become(int program, int socket, const CompanionTask& task) {
  (void)::setpgid(0, 0);  // its children go with it, also one that has not yet asked the kernel for that
  go_first();
  for (int fd = kRegionFd; fd < kFirstFreeFd; ++fd) {
    if (std::ranges::find(task.kept, fd) == task.kept.end()) (void)::close(fd);
  }
  sigset_t children;
  (void)::sigemptyset(&children);
  (void)::sigaddset(&children, SIGCHLD);
  (void)::sigprocmask(SIG_UNBLOCK, &children, nullptr);
  size_t count = 0;
  for (char** one = environ; *one != nullptr && count < kMostVariables; ++one) {
    if (std::strncmp(*one, kOwnVariables, sizeof kOwnVariables - 1) != 0) variables[count++] = *one;
  }
  if (socket < 0 || ::dup2(socket, task.socket) >= 0) {
    (void)::syscall(SYS_execveat, program, "", task.words, variables, AT_EMPTY_PATH);
  }
  ::_exit(kNotExecuted);
}

}  // namespace

int Companion::renew() {
  signal(SIGKILL);
  if (pid_ > 0) remains_.add(pid_);
  pid_ = -1;
  is_due_ = false;
  pause_ = kFirstPause;
  worker_end_.reset();
  own_end_.reset();
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return -1;
  worker_end_ = out_of_the_way(Fd(ends[0]));
  own_end_ = out_of_the_way(Fd(ends[1]));
  return worker_end_.get();
}

void Companion::start(int program, Time now) {
  worker_end_.reset();
  program_ = out_of_the_way(Fd(::fcntl(program, F_DUPFD_CLOEXEC, 0)));
  start(now);
}

void Companion::start(Time now) {
  started_ = now;
  is_due_ = false;
  if (!own_end_ || !program_) return;
  pid_ = ::fork();
  if (pid_ == 0) become(program_.get(), own_end_.get(), task_);
  if (pid_ > 0) (void)::setpgid(pid_, pid_);  // whoever comes first
  is_due_ = pid_ < 0;                         // there is no room for it now
}

void Companion::replace(Time now) const {
  if (now >= started_ + kLeastLife) signal(SIGKILL);
}

void Companion::signal(int number) const {
  if (pid_ > 0 && ::kill(-pid_, number) != 0) (void)::kill(pid_, number);  // it is ours until it is reaped
}

bool Companion::reap() {
  remains_.reap();
  siginfo_t ended{};
  const bool has_ended = pid_ > 0 && ::waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) == 0;
  if (!has_ended || ended.si_pid != pid_) return false;
  (void)::kill(-pid_, SIGKILL);  // what it has left; until it is reaped its group has no other's number
  int status = 0;
  (void)::waitpid(pid_, &status, 0);
  const bool is_done = WIFEXITED(status) && WEXITSTATUS(status) == 0;  // its worker has gone
  if (!is_done) {
    const bool is_killed = WIFSIGNALED(status);
    log_line("error", "supervisor.companion_ended name=%s pid=%d %s=%d action=\"another one\"", task_.name, pid_,
             is_killed ? "signal" : "code", is_killed ? WTERMSIG(status) : WEXITSTATUS(status));
  }
  pid_ = -1;
  return !is_done;
}

void Companion::keep(Time now) {
  if (reap()) {
    is_due_ = true;
    pause_ = now >= started_ + std::max(pause_, kLeastLife) ? kFirstPause : std::min(2 * pause_, kLongestPause);
  }
  if (is_due_ && now >= started_ + pause_) start(now);
}

Time Companion::rest(Time now) const { return is_due_ ? std::max<Time>(started_ + pause_ - now, 0) : -1; }

void run_companion(int program, const CompanionTask& task, Time patience, int unclosed) {
  int ends[2] = {-1, -1};
  (void)::pipe2(ends, O_CLOEXEC | O_NONBLOCK);  // without it nobody learns why
  const Fd said = out_of_the_way(Fd(ends[0]));
  Fd errors = out_of_the_way(Fd(ends[1]));
  const pid_t pid = ::fork();
  if (pid == 0) {
    (void)::dup2(errors.get(), STDERR_FILENO);
    (void)::fcntl(unclosed, F_SETFD, 0);
    become(program, -1, task);
  }
  errors.reset();
  const Time until = now() + patience;
  char why[kWhyLimit + 1] = {};
  size_t size = 0;
  pollfd item{said.get(), POLLIN, 0};
  ssize_t got = pid > 0 ? -1 : 0;
  while (got != 0 && now() < until) {
    (void)::poll(&item, 1, static_cast<int>(until - now()));
    got = ::read(said.get(), why + size, kWhyLimit - size);
    size += got > 0 ? static_cast<size_t>(got) : 0;
  }
  if (std::string_view(why) == kDone) return;
  if (pid > 0 && ::kill(-pid, SIGKILL) != 0)
    (void)::kill(pid, SIGKILL);  // and no wait: in the kernel's hands it may stay for long
  for (char* at = why; *at != '\0'; ++at) *at = *at == '"' || *at < ' ' ? ' ' : *at;
  log_line("error", "supervisor.companion_failed name=%s pid=%d in_time=%s why=\"%s\"", task.name, pid,
           got == 0 ? "true" : "false", why);
}

}  // namespace inductorfs::supervisor
