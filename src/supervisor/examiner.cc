// SPDX-License-Identifier: Apache-2.0
#include "examiner.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <optional>

#include "inductorfs/supervisor/protocol.h"
#include "line.h"
#include "workers.h"

namespace inductorfs::supervisor {
namespace {

constexpr int kNotExecuted = 127;
constexpr Time kLeastLife = 1000;
constexpr Time kFirstPause = 100;
constexpr Time kLongestPause = 64'000;
/// The mount's environment has secrets, and what it says of the mount no look needs.
constexpr const char kOwnVariables[] = "INDUCTORFS_";
constexpr size_t kMostVariables = 1024;
const char* variables[kMostVariables + 1];

/// In the child: never returns, and allocates nothing. It has its socket, what its tasks need, and nothing else of the
/// mount's.
[[noreturn]] void become(int program, int socket, const char* const* words) {
  go_first();
  for (int fd = kRegionFd; fd < kFirstFreeFd; ++fd) {
    if (fd != kExaminerTaskFd) (void)::close(fd);
  }
  sigset_t children;
  (void)::sigemptyset(&children);
  (void)::sigaddset(&children, SIGCHLD);
  (void)::sigprocmask(SIG_UNBLOCK, &children, nullptr);
  size_t count = 0;
  for (char** one = environ; *one != nullptr && count < kMostVariables; ++one) {
    if (std::strncmp(*one, kOwnVariables, sizeof kOwnVariables - 1) != 0) variables[count++] = *one;
  }
  if (::dup2(socket, kExaminerFd) >= 0) {
    (void)::syscall(SYS_execveat, program, "", words, variables, AT_EMPTY_PATH);
  }
  ::_exit(kNotExecuted);
}

}  // namespace

int Examiner::renew() {
  signal(SIGKILL);
  if (pid_ > 0) remains_.add(pid_);
  pid_ = -1;
  is_due_ = false;
  pause_ = kFirstPause;
  worker_end_.reset();
  own_end_.reset();
  if (words_ == nullptr) return -1;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return -1;
  worker_end_ = out_of_the_way(Fd(ends[0]));
  own_end_ = out_of_the_way(Fd(ends[1]));
  return worker_end_.get();
}

void Examiner::start(int program, Time now) {
  worker_end_.reset();
  program_ = out_of_the_way(Fd(::fcntl(program, F_DUPFD_CLOEXEC, 0)));
  start(now);
}

void Examiner::start(Time now) {
  started_ = now;
  is_due_ = false;
  if (!own_end_ || !program_) return;
  pid_ = ::fork();
  if (pid_ == 0) become(program_.get(), own_end_.get(), words_);
  is_due_ = pid_ < 0;  // there is no room for it now
}

void Examiner::replace(Time now) const {
  if (now >= started_ + kLeastLife) signal(SIGKILL);
}

void Examiner::signal(int number) const {
  if (pid_ > 0) (void)::kill(pid_, number);  // it is ours until it is reaped
}

bool Examiner::reap() {
  remains_.reap();
  int status = 0;
  if (pid_ <= 0) return false;
  if (::waitpid(pid_, &status, WNOHANG) != pid_) {
    const std::optional<int> last = status_of_remains(pid_);
    if (!last) return false;
    status = *last;
    remains_.add(pid_);
  }
  const bool is_done = WIFEXITED(status) && WEXITSTATUS(status) == 0;  // its worker has gone
  if (!is_done) {
    const bool is_killed = WIFSIGNALED(status);
    log_line("error", "supervisor.examiner_ended pid=%d %s=%d action=\"another one\"", pid_,
             is_killed ? "signal" : "code", is_killed ? WTERMSIG(status) : WEXITSTATUS(status));
  }
  pid_ = -1;
  return !is_done;
}

void Examiner::keep(Time now) {
  if (reap()) {
    is_due_ = true;
    pause_ = now >= started_ + std::max(pause_, kLeastLife) ? kFirstPause : std::min(2 * pause_, kLongestPause);
  }
  if (is_due_ && now >= started_ + pause_) start(now);
}

Time Examiner::rest(Time now) const { return is_due_ ? std::max<Time>(started_ + pause_ - now, 0) : -1; }

}  // namespace inductorfs::supervisor
