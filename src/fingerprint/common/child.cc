// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/common/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/sanitized.h"

namespace inductorfs::fingerprint {
namespace {

/// How long a killed child may take to die. One that is stuck in the kernel (a hung GPU driver) does not die at all: it
/// is left to init rather than waited for.
constexpr Milliseconds kDeathLimit{2000};
constexpr Milliseconds kReapStep{10};  ///< where the kernel has no pidfd to tell of its end
constexpr size_t kReadPiece = 16384;
constexpr const char* kBarePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
constexpr std::string_view kStrippedVariables[] = {"TORCHINDUCTOR_CACHE_DIR=", "TRITON_CACHE_DIR=", "LC_ALL="};

/// What a bare child may use; it needs a tenth of it.
constexpr rlim_t kMemoryLimit = rlim_t{8} << 30;
constexpr rlim_t kFileLimit = rlim_t{16} << 20;
constexpr rlim_t kDescriptorLimit = 256;
constexpr int kReportFd = STDERR_FILENO + 1;
static_assert(kChildDescriptor == kReportFd + 1);
/// OOM_SCORE_ADJ_MAX. Of a fact that was not learned the next look learns more; the worker serves everybody.
constexpr std::string_view kOomScore = "1000";

/// All that the child needs. Made before the fork: between fork and exec a child of a process with threads must not
/// take memory or locks. Needs external synchronisation.
struct Launch {
  const char* program = nullptr;
  char* const* arguments = nullptr;
  char* const* variables = nullptr;
  int out = -1;
  int err = -1;
  int report = -1;
  int passed = -1;
  bool bare = false;
  rlim_t memory = 0;
  rlim_t seconds = 0;
  pid_t parent = 0;
};

/// For the child: the reason goes to the parent, which reads it until exec closes the pipe.
[[noreturn]] void give_up(int error) {
  (void)!write(kReportFd, &error, sizeof error);  // nobody else could be told
  _exit(127);
}

void require(bool done) {
  if (!done) give_up(errno);
}

void reset_signals() {
  for (int number = 1; number < NSIG; ++number) (void)signal(number, SIG_DFL);  // some cannot be changed
  sigset_t none;
  sigemptyset(&none);
  require(sigprocmask(SIG_SETMASK, &none, nullptr) == 0);
}

void arrange_descriptors(const Launch& launch) {
  // Above all that is used below, so that no dup2 overwrites what a later one needs.
  const int out = fcntl(launch.out, F_DUPFD, kChildDescriptor + 1);
  const int err = fcntl(launch.err, F_DUPFD, kChildDescriptor + 1);
  const int passed = launch.passed < 0 ? -1 : fcntl(launch.passed, F_DUPFD, kChildDescriptor + 1);
  if (launch.report != kReportFd && dup3(launch.report, kReportFd, O_CLOEXEC) != kReportFd) _exit(127);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  require(out >= 0 && err >= 0 && null >= 0);
  require(dup2(null, STDIN_FILENO) == STDIN_FILENO && dup2(out, STDOUT_FILENO) == STDOUT_FILENO &&
          dup2(err, STDERR_FILENO) == STDERR_FILENO);
  require(launch.passed < 0 || (passed >= 0 && dup2(passed, kChildDescriptor) == kChildDescriptor));
  const int others = launch.passed < 0 ? kChildDescriptor : kChildDescriptor + 1;
  if (syscall(SYS_close_range, others, ~0U, 0) == 0) return;
  rlimit limit{};  // before Linux 5.9
  require(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  for (auto fd = static_cast<rlim_t>(others); fd < limit.rlim_cur; ++fd)
    (void)close(static_cast<int>(fd));  // most are not open
}

void set_limit(__rlimit_resource resource, rlim_t value) {
  rlimit limit{};
  require(getrlimit(resource, &limit) == 0);
  if (limit.rlim_max != RLIM_INFINITY) value = std::min(value, limit.rlim_max);
  limit = {value, value};
  require(setrlimit(resource, &limit) == 0);
}

void set_limits(const Launch& launch) {
  set_limit(RLIMIT_CORE, 0);
#ifndef INDUCTORFS_SANITIZED  // a sanitizer reserves terabytes of addresses for itself
  set_limit(RLIMIT_AS, kMemoryLimit);
  if (launch.memory > 0) set_limit(RLIMIT_DATA, launch.memory);
#endif
  set_limit(RLIMIT_FSIZE, kFileLimit);
  set_limit(RLIMIT_NOFILE, kDescriptorLimit);
  set_limit(RLIMIT_CPU, launch.seconds);
}

/// A child of a child goes with it.
void end_with_parent(const Launch& launch) {
  require(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
  if (getppid() != launch.parent) _exit(127);  // it died before that
}

[[noreturn]] void run(const Launch& launch) {
  arrange_descriptors(launch);
  go_first();
  reset_signals();
  end_with_parent(launch);  // before it leaves its parent's group, which would be killed as well
  // A session of its own: with the caller's terminal another user's program could type into it.
  require(setsid() >= 0);
  require(chdir("/") == 0);
  (void)umask(077);
  if (launch.bare) set_limits(launch);
  // Not for our own probe: the CUDA library of an ordinary user makes device nodes by a set-user-id program.
  if (launch.bare) require(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  (void)execve(launch.program, launch.arguments, launch.variables);
  give_up(errno);
}

/// Forks with all signals blocked: no handler of this process may run in the child.
pid_t start(const Launch& launch) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  (void)pthread_sigmask(SIG_SETMASK, &all, &before);  // fails for a wrong first argument only
  const pid_t pid = fork();
  if (pid == 0) run(launch);
  const int error = errno;
  (void)pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return pid;
}

/// A running child, killed with its group and reaped when this goes. Needs external synchronisation.
class Child {
 public:
  Child(pid_t pid, Fd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (reaped_) return;
    // The child has a group of its own only after its setsid(). Before that there is nobody else to kill.
    if (kill(-pid_, SIGKILL) != 0) (void)kill(pid_, SIGKILL);  // gone already is as good
    const Deadline limit = Deadline::after(kDeathLimit);
    pollfd ended{pidfd_.get(), POLLIN, 0};
    while (waitpid(pid_, nullptr, WNOHANG) == 0 && !limit.passed()) {
      (void)poll(&ended, 1, static_cast<int>((pidfd_ ? limit.left() : kReapStep).count()));
    }
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

std::vector<std::string> child_environment(const ChildOptions& options) {
  std::vector<std::string> result;
  if (options.bare) result.emplace_back(std::string("PATH=") + kBarePath);
  for (char** variable = environ; !options.bare && variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    bool stripped = false;
    for (std::string_view name : kStrippedVariables) stripped = stripped || text.starts_with(name);
    if (!stripped) result.emplace_back(text);
  }
  result.emplace_back("LC_ALL=C");
  result.insert(result.end(), options.environment.begin(), options.environment.end());
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

/// How long a child may take, and who may give it up before.
struct Patience {
  Deadline end;
  const std::function<bool()>& cancelled;

  /// An error when it is over.
  [[nodiscard]] Result<void> check(const std::string& late) const {
    if (end.passed()) return fail(ErrorCode::kTimedOut, late);
    if (cancelled && cancelled()) return fail(ErrorCode::kUnavailable, "it was given up");
    return {};
  }
  /// For poll(2).
  [[nodiscard]] int step() const {
    return static_cast<int>((cancelled ? std::min(end.left(), kCancelStep) : end.left()).count());
  }
};

/// Follows the child to its end. What a grandchild that outlives it would still write is not waited for.
Result<ChildAnswer> follow(Child& child, Fd out, Fd err, const Patience& patience, const std::string& program) {
  ChildAnswer answer;
  while (true) {
    INDUCTORFS_TRY(patience.check(program + " did not end in time and was killed"));
    pollfd waits[] = {{child.pidfd(), POLLIN, 0}, {out.get(), POLLIN, 0}, {err.get(), POLLIN, 0}};
    const int ready = poll(waits, std::size(waits), patience.step());
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

/// Waits until the child has become the program, or could not. On a file system that hangs neither comes.
Result<void> await_exec(const Fd& report, const Patience& patience, const std::string& program) {
  int error = 0;
  while (true) {
    INDUCTORFS_TRY(patience.check(program + " could not be started in time and was killed"));
    pollfd wait{report.get(), POLLIN, 0};
    const int ready = poll(&wait, 1, patience.step());
    if (ready < 0 && errno != EINTR) return fail_errno("poll", program);
    if (ready <= 0) continue;
    const ssize_t got = read(report.get(), &error, sizeof error);
    if (got < 0 && errno == EINTR) continue;
    if (got != static_cast<ssize_t>(sizeof error)) return {};  // closed by exec
    if (error == ENOENT) return fail(ErrorCode::kNotFound, program + ": no such program");
    return fail(error_from_errno(error, "run", program));
  }
}

}  // namespace

void go_first() {
  const int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (file < 0) return;
  (void)!write(file, kOomScore.data(), kOomScore.size());
  (void)close(file);
}

std::string program_file(const std::string& name) {
  std::error_code error;
  if (name.find('/') != std::string::npos) {
    const auto path = std::filesystem::absolute(name, error);
    return error ? std::string() : path.string();
  }
  const char* variable = std::getenv("PATH");  // nothing changes the environment while facts are learned
  const std::string path = variable == nullptr ? kBarePath : variable;
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find(':', at), path.size());
    const std::string file = path.substr(at, end - at) + "/" + name;
    if (!name.empty() && file.front() == '/' && access(file.c_str(), X_OK) == 0) return file;
    at = end + 1;
  }
  return {};
}

Result<ChildAnswer> run_child(const std::vector<std::string>& command, Milliseconds deadline,
                              const ChildOptions& options) {
  INDUCTORFS_CHECK(!command.empty());
  const std::string program = program_file(command.front());
  if (program.empty()) return fail(ErrorCode::kNotFound, command.front() + ": no such program");
  INDUCTORFS_TRY_ASSIGN(auto out, make_pipe());
  INDUCTORFS_TRY_ASSIGN(auto err, make_pipe());
  INDUCTORFS_TRY_ASSIGN(auto report, make_pipe());

  std::vector<std::string> arguments = command;
  std::vector<std::string> variables = child_environment(options);
  const std::vector<char*> argument_pointers = pointers(arguments);
  const std::vector<char*> variable_pointers = pointers(variables);
  const auto seconds = static_cast<rlim_t>(std::chrono::duration_cast<std::chrono::seconds>(deadline).count() + 1);
  const pid_t pid =
      start({program.c_str(), argument_pointers.data(), variable_pointers.data(), out.write.get(), err.write.get(),
             report.write.get(), options.descriptor, options.bare, options.memory, seconds, getpid()});
  if (pid < 0) return fail_errno("fork", command.front());
  // By number: glibc before 2.36 has no pidfd_open.
  Child child(pid, Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))));
  if (child.pidfd() < 0) return fail_errno("pidfd_open", command.front());
  out.write.reset();
  err.write.reset();
  report.write.reset();
  const Patience patience{Deadline::after(deadline), options.cancelled};
  INDUCTORFS_TRY(await_exec(report.read, patience, command.front()));
  return follow(child, std::move(out.read), std::move(err.read), patience, command.front());
}

}  // namespace inductorfs::fingerprint
