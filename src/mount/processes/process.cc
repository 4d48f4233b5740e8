// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/mount/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "inductorfs/base/call_filter.h"
#include "inductorfs/base/journal.h"
#include "inductorfs/base/own_user.h"
#include "inductorfs/base/sanitized.h"
#include "inductorfs/config/paths.h"
#include "inductorfs/config/settings.h"
#include "inductorfs/config/text.h"
#include "inductorfs/control/socket.h"

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

namespace inductorfs::mount {

using config::printable;

namespace {

constexpr size_t kMessageLimit = 16ULL << 10;
constexpr size_t kWarningLimit = 4096;  // a pipe takes it at once
constexpr char kReadyMark = 'R';
constexpr char kErrorMark = 'E';
/// What a child that was told to stop may take before it is killed.
constexpr Milliseconds kStopPatience{5000};
constexpr int kDeathTick = 10;

/// All that the child says until it closes the pipe or the deadline; kTimedOut.
Result<std::string> read_message(int fd, Deadline deadline) {
  std::string message;
  std::array<char, 4096> piece{};
  while (message.size() < kMessageLimit) {
    if (!control::wait_for(fd, POLLIN, deadline)) return fail(ErrorCode::kTimedOut);
    const ssize_t got = ::read(fd, piece.data(), piece.size());
    if (got < 0 && errno != EINTR) return fail_errno("read pipe");
    if (got == 0) break;
    if (got > 0) message.append(piece.data(), static_cast<size_t>(got));
  }
  return message;
}

/// The first worker holds the other end until it is gone, so the end of the pipe is its end.
void end_child(const Forked& forked) {
  (void)::kill(forked.pid, SIGTERM);  // may have ended by itself
  const Result<std::string> rest = read_message(forked.pipe.get(), Deadline::after(kStopPatience));
  if (rest) return;
  (void)::kill(-forked.pid, SIGKILL);  // the supervisor and its worker: the child leads their group
  (void)::kill(forked.pid, SIGKILL);   // as long as it has not made that group
}

std::string describe(int status) {
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  // A supervisor whose first worker was killed says so by its code, as a shell does.
  constexpr int kSignalBase = 128;
  const int code = WEXITSTATUS(status);
  return code > kSignalBase ? "signal " + std::to_string(code - kSignalBase) : "code " + std::to_string(code);
}

Error death_of(pid_t pid, const std::string& log) {
  int status = 0;
  const Deadline deadline = Deadline::after(kStopPatience);
  pid_t gone = 0;
  while ((gone = ::waitpid(pid, &status, WNOHANG)) == 0 && !deadline.passed()) (void)::poll(nullptr, 0, kDeathTick);
  const std::string how =
      gone == 0 ? std::string("after a crash, and was restarted") : "with " + describe(status);  // no status: "code 0"
  return Error(ErrorCode::kInternal, "the daemon ended during startup " + how + ": " + log + ": see the log");
}

Result<void> silence_stdio() {
  const Result<Fd> null = open_at(AT_FDCWD, "/dev/null", O_RDWR);
  if (!null) {
    const std::string why = null.error().what().empty() ? "it does not exist" : null.error().what();
    return fail(null.error().code(), "cannot open /dev/null: " + why + ": make it with mknod -m 666 /dev/null c 1 3");
  }
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::dup2(null->get(), fd) < 0) return fail_errno("dup2", "/dev/null");
  }
  return {};
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);  // the soft limit serves too; what is kept open has a limit of its own
}

void clean_environment(const std::string& mountpoint) {
  // The interpreter that is asked for torch must not open its caches in the mount that this process serves.
  for (const char* variable : {"TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"}) (void)::unsetenv(variable);
  for (const char* variable : {"TMPDIR", "TEMP", "TMP", "SQLITE_TMPDIR"}) {
    const char* value = std::getenv(variable);
    if (value != nullptr && config::is_at_or_below(config::absolute_path(value, "/"), mountpoint))
      (void)::unsetenv(variable);
  }
}

}  // namespace

void Readiness::say(std::string_view text) {
  if (!pipe_) return;
  (void)write_full(pipe_.get(), text);  // whoever waited may have given up
  pipe_.reset();
}

void Readiness::ready(const std::string& warnings) { say(kReadyMark + warnings.substr(0, kWarningLimit)); }

void Readiness::failed(const Error& error) {
  const std::string code(to_string(error.code()));
  // The code alone goes with a call whose caller was to say what it means.
  say(kErrorMark + code + "\n" +
      (error.what().empty() ? "the mount could not begin, and knows no more than " + code + ": see its log"
                            : error.what()));
}

Result<Forked> fork_daemon() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno("pipe2");
  Fd reader(ends[0]);
  Fd writer(ends[1]);
  Forked forked;
  forked.pid = ::fork();
  if (forked.pid < 0) return fail_errno("fork");
  if (forked.pid > 0) {
    forked.pipe = std::move(reader);
    return forked;
  }
  (void)::setsid();  // fails only for a group leader, which a fresh child is not
  forked.child = true;
  forked.readiness = Readiness(std::move(writer));
  return forked;
}

Result<std::string> await_ready(const Forked& forked, std::chrono::seconds patience, const std::string& log) {
  const Result<std::string> message = read_message(forked.pipe.get(), Deadline::after(patience));
  if (!message) {
    end_child(forked);
    return fail(ErrorCode::kTimedOut, "the mount did not answer within " + std::to_string(patience.count()) +
                                          " s: " + log + ": see the log, or give a longer --start-timeout");
  }
  if (message->empty()) return fail(death_of(forked.pid, log));
  if (message->front() == kReadyMark) return message->substr(1);
  const size_t newline = message->find('\n');
  const std::string_view code = std::string_view(*message).substr(1, newline == std::string::npos ? 0 : newline - 1);
  return fail(code == to_string(ErrorCode::kInvalid) ? ErrorCode::kInvalid : ErrorCode::kInternal,
              newline == std::string::npos ? *message : message->substr(newline + 1));
}

Result<void> settle(const std::string& mountpoint, bool keep_stdio) {
  if (::chdir("/") != 0) return fail_errno("chdir", "/");
  (void)::umask(0);  // the caller's umask has been applied by the kernel; modes of artefacts are taken as they are
  clean_environment(mountpoint);
  raise_descriptor_limit();
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  if (::sigaction(SIGPIPE, &ignore, nullptr) != 0) return fail_errno("sigaction");
  if (!keep_stdio) INDUCTORFS_TRY(silence_stdio());
  return {};
}

Result<void> keep_rights(std::span<const int> capabilities) {
  if (::geteuid() != 0) return {};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno("prctl");
#ifndef INDUCTORFS_SANITIZED
  // Where there is none the worker says so (filter_warning()).
  if (const auto filter = CallFilter::for_starting()) INDUCTORFS_TRY(filter->apply());
#endif
  return keep_capabilities(capabilities);
}

void protect() {
  (void)::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);  // needs CAP_SYS_RESOURCE: best effort
  const rlimit locked{RLIM_INFINITY, RLIM_INFINITY};
  (void)::setrlimit(RLIMIT_MEMLOCK, &locked);  // the same, as is what it is for (takeover/region.h)
}

void notify_systemd(const std::string& state) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  if (path == nullptr || (*path != '/' && *path != '@')) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t length = std::strlen(path);
  if (length >= sizeof address.sun_path) return;
  std::memcpy(address.sun_path, path, length);
  if (*path == '@') address.sun_path[0] = '\0';  // an abstract name
  const Fd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd) return;
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
  // systemd notices a lost word by its own timeout.
  (void)::sendto(fd.get(), state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address), size);
}

int exit_code_of(const Error& error) {
  constexpr int kWrongOption = 2;
  return error.code() == ErrorCode::kInvalid ? kWrongOption : EXIT_FAILURE;
}

tl::unexpected<Error> wrong_option(const Error& error) {
  const std::string text = error.what().empty() ? std::string(to_string(error.code())) : error.what();
  return fail(ErrorCode::kInvalid, text);
}

bool is_lasting(ErrorCode code) {
  constexpr std::array kLasting{ErrorCode::kInvalid,     ErrorCode::kNotFound,     ErrorCode::kNotDirectory,
                                ErrorCode::kIsDirectory, ErrorCode::kNotSupported, ErrorCode::kNotPermitted,
                                ErrorCode::kReadOnly,    ErrorCode::kCorrupt};
  return std::ranges::find(kLasting, code) != kLasting.end();
}

tl::unexpected<Error> wrong_path(const Error& error) {
  return is_lasting(error.code()) ? wrong_option(error) : fail(error);
}

std::string error_line(const Error& error) {
  const std::string what = error.what().empty() ? std::string(to_string(error.code())) : error.what();
  return journal_prefix("error") + ("inductorfs: " + printable(what)) + "\n";
}

std::vector<std::string> cautions(const config::Settings& settings) {
  std::vector<std::string> lines;
  struct stat secret {};
  if (!settings.password_file.empty() && ::stat(settings.password_file.c_str(), &secret) == 0 &&
      (secret.st_mode & S_IROTH) != 0) {
    lines.push_back("every user of this host may read the password in " + printable(settings.password_file) +
                    ": chmod 600 it");
  }
  struct statvfs disk {};
  std::filesystem::path there(settings.store);
  while (::statvfs(there.c_str(), &disk) != 0 && there.has_relative_path()) there = there.parent_path();
  const uint64_t size = uint64_t{disk.f_blocks} * disk.f_frsize;
  if (size > 0 && settings.store_limit > size) {
    lines.push_back("the disk of the store " + printable(settings.store) + " has " + config::human_bytes(size) +
                    ", less than --store-limit " + config::human_bytes(settings.store_limit) +
                    ": name a --store on a larger disk, or lower the limit");
  }
  return lines;
}

std::string warning_line(const std::string& warning) {
  return journal_prefix("warning") + ("inductorfs: warning: " + printable(warning)) + "\n";
}

}  // namespace inductorfs::mount
