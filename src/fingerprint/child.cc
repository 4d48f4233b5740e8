// SPDX-License-Identifier: Apache-2.0
#include "child.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string_view>
#include <utility>

#include "inductorfs/base/fd.h"

namespace inductorfs::fingerprint {
namespace {

/// How long a killed child may take to die. One that is stuck in the kernel (a hung GPU driver) does not die at all: it
/// is left to init rather than waited for.
constexpr Milliseconds kDeathLimit{2000};
constexpr size_t kReadPiece = 16384;
constexpr std::string_view kStrippedVariables[] = {"TORCHINDUCTOR_CACHE_DIR=", "TRITON_CACHE_DIR=", "LC_ALL="};

/// The attributes and file actions of posix_spawn. Needs external synchronisation.
class SpawnPlan {
 public:
  SpawnPlan() {
    // Both only fail for lack of memory, which glibc does not report here.
    (void)posix_spawn_file_actions_init(&actions_);
    (void)posix_spawnattr_init(&attributes_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;
  ~SpawnPlan() {
    (void)posix_spawn_file_actions_destroy(&actions_);  // a destructor has nobody to tell
    (void)posix_spawnattr_destroy(&attributes_);
  }

  [[nodiscard]] bool prepare(int out, int err) {
    sigset_t none;
    sigset_t all;
    sigemptyset(&none);
    sigfillset(&all);
    constexpr short kFlags = POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
    return posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0) == 0 &&
           posix_spawn_file_actions_adddup2(&actions_, out, STDOUT_FILENO) == 0 &&
           posix_spawn_file_actions_adddup2(&actions_, err, STDERR_FILENO) == 0 &&
           posix_spawn_file_actions_addclosefrom_np(&actions_, STDERR_FILENO + 1) == 0 &&
           posix_spawnattr_setflags(&attributes_, kFlags) == 0 && posix_spawnattr_setpgroup(&attributes_, 0) == 0 &&
           posix_spawnattr_setsigmask(&attributes_, &none) == 0 &&
           posix_spawnattr_setsigdefault(&attributes_, &all) == 0;
  }
  [[nodiscard]] const posix_spawn_file_actions_t* actions() const { return &actions_; }
  [[nodiscard]] const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

/// A running child, killed with its group and reaped when this goes. Needs external synchronisation.
class Child {
 public:
  Child(pid_t pid, Fd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (reaped_) return;
    (void)kill(-pid_, SIGKILL);  // gone already is as good
    pollfd ended{pidfd_.get(), POLLIN, 0};
    if (poll(&ended, 1, static_cast<int>(kDeathLimit.count())) == 1) (void)reap();
  }
  [[nodiscard]] int pidfd() const { return pidfd_.get(); }
  /// Requires: the pidfd is readable, so that this does not block.
  [[nodiscard]] int reap() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    reaped_ = true;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  pid_t pid_;
  Fd pidfd_;
  bool reaped_ = false;
};

struct Pipe {
  Fd read;
  Fd write;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return fail_errno("pipe");
  Pipe pipe{Fd(ends[0]), Fd(ends[1])};
  // Only our end: the child must see an ordinary blocking stream.
  if (fcntl(pipe.read.get(), F_SETFL, O_NONBLOCK) != 0) return fail_errno("fcntl");
  return pipe;
}

std::vector<std::string> child_environment(const std::vector<std::string>& added) {
  std::vector<std::string> result;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    bool stripped = false;
    for (std::string_view name : kStrippedVariables) stripped = stripped || text.starts_with(name);
    if (!stripped) result.emplace_back(text);
  }
  result.emplace_back("LC_ALL=C");
  result.insert(result.end(), added.begin(), added.end());
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

/// Takes what the pipe holds now; closes `fd` at its end. False when the limit is passed.
bool drain(Fd& fd, std::string& out) {
  std::array<char, kReadPiece> piece{};
  while (fd) {
    const ssize_t got = read(fd.get(), piece.data(), piece.size());
    if (got > 0) {
      out.append(piece.data(), static_cast<size_t>(got));
      if (out.size() > kChildOutputLimit) return false;
    } else if (got < 0 && errno == EINTR) {
      continue;
    } else if (got < 0 && errno == EAGAIN) {
      return true;
    } else {
      fd.reset();
    }
  }
  return true;
}

/// Follows the child to its end. What a grandchild that outlives it would still write is not waited for.
Result<ChildAnswer> follow(Child& child, Fd out, Fd err, const Deadline& deadline, const std::string& program) {
  ChildAnswer answer;
  while (true) {
    if (deadline.passed()) return fail(ErrorCode::kTimedOut, program + " did not end in time and was killed");
    pollfd waits[] = {{child.pidfd(), POLLIN, 0}, {out.get(), POLLIN, 0}, {err.get(), POLLIN, 0}};
    const int ready = poll(waits, std::size(waits), static_cast<int>(deadline.left().count()));
    if (ready < 0 && errno != EINTR) return fail_errno("poll", program);
    if (ready <= 0) continue;
    const bool ended = waits[0].revents != 0;
    if (!drain(out, answer.out) || !drain(err, answer.err)) {
      return fail(ErrorCode::kTooLarge, program + " printed more than " + std::to_string(kChildOutputLimit) + " bytes");
    }
    if (ended) break;
  }
  answer.exit_code = child.reap();
  return answer;
}

}  // namespace

Result<ChildAnswer> run_child(const std::vector<std::string>& command, Milliseconds deadline,
                              const std::vector<std::string>& environment) {
  INDUCTORFS_CHECK(!command.empty());
  auto out = make_pipe();
  if (!out) return fail(std::move(out).error());
  auto err = make_pipe();
  if (!err) return fail(std::move(err).error());
  SpawnPlan plan;
  if (!plan.prepare(out->write.get(), err->write.get())) return fail(ErrorCode::kInternal, "posix_spawn: no memory");

  std::vector<std::string> arguments = command;
  std::vector<std::string> variables = child_environment(environment);
  pid_t pid = -1;
  const int failure = posix_spawnp(&pid, command.front().c_str(), plan.actions(), plan.attributes(),
                                   pointers(arguments).data(), pointers(variables).data());
  if (failure == ENOENT) return fail(ErrorCode::kNotFound, command.front() + ": no such program");
  if (failure != 0) return fail(error_from_errno(failure, "run", command.front()));
  // By number: glibc before 2.36 has no pidfd_open.
  Child child(pid, Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))));
  if (child.pidfd() < 0) return fail_errno("pidfd_open", command.front());
  out->write.reset();
  err->write.reset();
  return follow(child, std::move(out->read), std::move(err->read), Deadline::after(deadline), command.front());
}

}  // namespace inductorfs::fingerprint
