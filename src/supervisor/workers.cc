// SPDX-License-Identifier: Apache-2.0
#include "workers.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string_view>
#include <utility>

#include "inductorfs/supervisor/protocol.h"

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

namespace inductorfs::supervisor {
namespace {

constexpr int kHighFd = kFirstFreeFd;
constexpr int kNotExecuted = 127;
/// The least oom_score_adj of a worker. Not -1000: a worker that eats all memory must be killable all the same.
constexpr int kWorkerScore = -900;
constexpr int kHighestScore = 1000;  ///< OOM_SCORE_ADJ_MAX

bool put(int fd, int place) {
  if (fd >= 0) return ::dup2(fd, place) >= 0;
  (void)::close(place);
  return true;
}

/// What takes a right is done before: whatever is asked of the kernel here it keeps, beyond the program's start too.
bool give_up_rights(const WorkerIds& user) {
  if (user.uid == 0) return true;                // it does so by itself
  (void)::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);  // best effort, as the limits
  const rlimit unlimited{RLIM_INFINITY, RLIM_INFINITY};
  (void)::setrlimit(RLIMIT_MEMLOCK, &unlimited);  // what it is for: takeover/region.h
  (void)::setrlimit(RLIMIT_NPROC, &unlimited);    // of threads, of which root may have any number
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && become_server(user);
}

/// In the child: never returns. Nothing here may allocate or log: memory may be what there is none of.
[[noreturn]] void become_worker(int program, const KeptDescriptors& kept, int link, const char* mountpoint,
                                const WorkerIds& user) {
  go_first();
  const bool ready = ::dup2(link, kLinkFd) >= 0 && put(kept.device, kDeviceFd) && put(kept.lock, kLockFd) &&
                     put(kept.notices, kNoticesFd) && put(kept.control, kControlFd) &&
                     put(kept.examiner, kExaminerFd) && put(kept.mounter, kMounterFd) && put(kept.guests, kGuestsFd) &&
                     put(-1, kExaminerTaskFd) && put(-1, kMounterTaskFd) && put(-1, kMounterNotesFd);
  sigset_t children;
  (void)::sigemptyset(&children);
  (void)::sigaddset(&children, SIGCHLD);
  (void)::sigprocmask(SIG_UNBLOCK, &children, nullptr);
  char name[] = "inductorfs";
  char verb[] = "worker";
  char* arguments[] = {name, verb, const_cast<char*>(mountpoint), nullptr};
  // By descriptor: whatever was installed at its path meanwhile.
  if (ready && give_up_rights(user)) (void)::syscall(SYS_execveat, program, "", arguments, environ, AT_EMPTY_PATH);
  ::_exit(kNotExecuted);
}

}  // namespace

/// Its score is inherited, and a process may always raise its own.
void go_first() {
  const Fd file(::open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC));
  std::array<char, 16> text{};
  int score = 0;
  const ssize_t got = file ? ::read(file.get(), text.data(), text.size()) : -1;
  if (got <= 0 || std::from_chars(text.data(), text.data() + got, score).ec != std::errc()) return;
  score = std::clamp(score + 1, kWorkerScore, kHighestScore);
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), score);
  if (error == std::errc()) (void)!::pwrite(file.get(), text.data(), static_cast<size_t>(end - text.data()), 0);
}

bool keep_only(std::initializer_list<int> kept) {
  constexpr rlim_t kMostDescriptors = 4096;  // of a worker: some hundred at most
  std::array<int, 3> high{};
  int count = 0;
  // None may lie where another one goes.
  for (const int fd : kept) high.at(count++) = ::fcntl(fd, F_DUPFD, static_cast<int>(high.size()));
  bool ready = true;
  for (int fd = 0; fd < count; ++fd) ready = ready && high.at(fd) >= 0 && ::dup2(high.at(fd), fd) >= 0;
  if (::syscall(SYS_close_range, count, ~0U, 0) == 0) return ready;  // Linux 5.9
  rlimit limit{};
  (void)::getrlimit(RLIMIT_NOFILE, &limit);
  const int end = static_cast<int>(std::min(limit.rlim_cur, kMostDescriptors));
  for (int fd = count; fd < end; ++fd) (void)::close(fd);
  return ready;
}

void rename_process(char* name, const char* what) {
  constexpr std::string_view kOld = "supervisor";
  std::array<char, 16> shown{};  // cut at 15 bytes, as a program's name is
  (void)std::snprintf(shown.data(), shown.size(), "inductorfs-%s", what);
  (void)::prctl(PR_SET_NAME, shown.data());
  const std::string_view now(name == nullptr ? "" : name);
  if (!now.ends_with(kOld)) return;
  char* const place = name + now.size() - kOld.size();
  std::memset(place, 0, kOld.size());
  std::memcpy(place, what, std::min(std::strlen(what), kOld.size()));
}

Time now() {
  timespec moment{};
  (void)::clock_gettime(CLOCK_MONOTONIC, &moment);  // cannot fail for this clock
  return moment.tv_sec * Time{1000} + moment.tv_nsec / 1'000'000;
}

Fd out_of_the_way(Fd fd) {
  if (!fd || fd.get() >= kHighFd) return fd;
  Fd high(::fcntl(fd.get(), F_DUPFD_CLOEXEC, kHighFd));
  return high ? std::move(high) : std::move(fd);
}

bool Signals::open() {
  sigset_t set;
  (void)::sigemptyset(&set);
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) (void)::sigaddset(&set, number);
  if (::sigprocmask(SIG_BLOCK, &set, nullptr) != 0) return false;
  fd_ = out_of_the_way(Fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)));
  return static_cast<bool>(fd_);
}

int Signals::next() {
  signalfd_siginfo info{};
  const bool got = ::read(fd_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info);
  return got ? static_cast<int>(info.ssi_signo) : 0;
}

bool Worker::start(int program, const KeptDescriptors& kept, const char* mountpoint, const WorkerIds& user) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return false;
  link_ = out_of_the_way(Fd(ends[0]));
  const Fd theirs = out_of_the_way(Fd(ends[1]));
  pid_ = ::fork();
  if (pid_ == 0) become_worker(program, kept, theirs.get(), mountpoint, user);
  if (pid_ < 0) link_.reset();
  return pid_ > 0;
}

bool Worker::reap(int& status) {
  if (pid_ <= 0 || ::waitpid(pid_, &status, WNOHANG) != pid_) return false;
  pid_ = -1;
  return true;
}

void Worker::signal(int number) const {
  if (pid_ > 0) (void)::kill(pid_, number);  // it is ours until it is reaped
}

void protect() {
  const Fd score(::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
  if (score) (void)!::write(score.get(), "-1000", 5);  // needs CAP_SYS_RESOURCE: best effort
  // What it has touched stays; what it never touches is not read in for it. Best effort: RLIMIT_MEMLOCK.
  (void)::mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT);
}

}  // namespace inductorfs::supervisor
