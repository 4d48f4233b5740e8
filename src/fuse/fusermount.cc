// SPDX-License-Identifier: Apache-2.0
#include "fusermount.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/message.h"

extern char** environ;  // NOLINT(readability-redundant-declaration): unistd.h has it with _GNU_SOURCE only

namespace inductorfs::fuse {
namespace {

constexpr const char* kProgram = "fusermount3";
constexpr const char* kSocketVariable = "_FUSE_COMMFD";
/// It only makes a system call; longer than this and something is wrong with the mount below.
constexpr Milliseconds kDeadline{20'000};
constexpr size_t kErrorTextLimit = 4096;

struct Pair {
  Fd ours;
  Fd theirs;
};

Result<Pair> make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return fail_errno("pipe");
  return Pair{Fd(ends[0]), Fd(ends[1])};
}

Result<Pair> make_socket_pair() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return fail_errno("socketpair");
  return Pair{Fd(ends[0]), Fd(ends[1])};
}

/// posix_spawn's list of what to do to descriptors in the child. Needs external synchronisation.
class SpawnActions {
 public:
  SpawnActions() { INDUCTORFS_CHECK(posix_spawn_file_actions_init(&actions_) == 0); }
  ~SpawnActions() { posix_spawn_file_actions_destroy(&actions_); }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;
  /// Also clears close-on-exec when both are the same (POSIX 2024, glibc 2.29).
  void give(int fd, int as) { INDUCTORFS_CHECK(posix_spawn_file_actions_adddup2(&actions_, fd, as) == 0); }
  [[nodiscard]] const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> environment_with(const std::string& setting) {
  std::vector<std::string> settings;
  const std::string name = setting.substr(0, setting.find('=') + 1);
  for (char** at = environ; *at != nullptr; ++at) {
    if (!std::string_view(*at).starts_with(name)) settings.emplace_back(*at);
  }
  settings.push_back(setting);
  return settings;
}

Result<pid_t> spawn(std::vector<std::string> arguments, int error_pipe, int socket) {
  SpawnActions actions;
  actions.give(error_pipe, STDERR_FILENO);
  std::vector<std::string> settings = environment_with(std::string(kSocketVariable) + "=" + std::to_string(socket));
  if (socket >= 0) actions.give(socket, socket);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, kProgram, actions.get(), nullptr, pointers_to(arguments).data(),
                                  pointers_to(settings).data());
  if (failed == ENOENT) {
    return fail(ErrorCode::kNotSupported,
                "fusermount3 was not found in PATH; install the package fuse3, or mount as root");
  }
  if (failed == EACCES || failed == EPERM) {
    return fail(ErrorCode::kNotPermitted,
                "fusermount3 may not be run by this user; `chmod 4755` it as the package fuse3 does, or join the group "
                "that may, or mount as root");
  }
  if (failed != 0) return fail(error_from_errno(failed, "start", kProgram));
  return child;
}

/// False: the deadline passed.
bool wait_readable(int fd, const Deadline& deadline) {
  pollfd waited{fd, POLLIN, 0};
  int ready = 0;
  do {
    ready = poll(&waited, 1, static_cast<int>(deadline.left().count()));
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

/// What it says on standard error, until it closes it.
std::string read_errors(int fd, const Deadline& deadline) {
  std::string text;
  std::array<char, 512> part{};
  while (text.size() < kErrorTextLimit && wait_readable(fd, deadline)) {
    const ssize_t got = ::read(fd, part.data(), part.size());
    if (got <= 0) break;
    text.append(part.data(), static_cast<size_t>(got));
  }
  while (!text.empty() && text.back() == '\n') text.pop_back();
  for (char& c : text) {
    if (c == '\n') c = ';';
  }
  return text;
}

/// The exit status; a program that did not end is killed (it is set-user-id: that may fail, then it is left).
int wait_for(pid_t child, bool in_time) {
  if (!in_time) (void)kill(child, SIGKILL);
  int status = 0;
  pid_t ended = 0;
  do {
    ended = waitpid(child, &status, in_time ? 0 : WNOHANG);
  } while (ended < 0 && errno == EINTR);
  return ended == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Fd received_descriptor(int socket) {
  char byte = 0;
  Fd device;
  (void)receive_message(socket, {&byte, 1}, {&device, 1});  // none: it has failed, and says why
  return device;
}

std::string remedy_for(const std::string& text) {
  if (text.find("user_allow_other") != std::string::npos) {
    return "; put the line user_allow_other into /etc/fuse.conf, or mount without allow_other";
  }
  if (text.find("/dev/fuse") != std::string::npos && text.find("ermission denied") != std::string::npos) {
    return "; let users open it (`chmod 0666 /dev/fuse`, as udev does), or mount as root";
  }
  if (text.find("/dev/fuse") != std::string::npos) {
    return "; load the module with `modprobe fuse`, in a container start it with --device /dev/fuse";
  }
  if (text.find("determine username") != std::string::npos) {
    return "; fusermount3 mounts for users alone that the user database names: add an entry for this uid (in a "
           "container "
           "to its /etc/passwd), or mount as root";
  }
  return "; mount as root, or below a directory of your own";
}

}  // namespace

Result<Fd> fusermount(const std::string& mountpoint, const std::string& options) {
  INDUCTORFS_TRY_ASSIGN(auto errors, make_pipe());
  INDUCTORFS_TRY_ASSIGN(auto socket, make_socket_pair());
  INDUCTORFS_TRY_ASSIGN(const auto child,
                        spawn({kProgram, "-o", options, "--", mountpoint}, errors.theirs.get(), socket.theirs.get()));
  errors.theirs.reset();
  socket.theirs.reset();

  const Deadline deadline = Deadline::after(kDeadline);
  const std::string text = read_errors(errors.ours.get(), deadline);
  Fd device = wait_readable(socket.ours.get(), deadline) ? received_descriptor(socket.ours.get()) : Fd();
  const int status = wait_for(child, !deadline.passed());
  if (device && status == 0) return device;
  return fail(
      ErrorCode::kNotPermitted,
      "mount " + mountpoint + ": " + (text.empty() ? "fusermount3 failed without a word" : text) + remedy_for(text));
}

Result<void> fusermount_unmount(const std::string& mountpoint, bool lazy) {
  INDUCTORFS_TRY_ASSIGN(auto errors, make_pipe());
  std::vector<std::string> arguments = {kProgram, "-u"};
  if (lazy) arguments.emplace_back("-z");
  arguments.insert(arguments.end(), {"--", mountpoint});
  INDUCTORFS_TRY_ASSIGN(const auto child, spawn(std::move(arguments), errors.theirs.get(), -1));
  errors.theirs.reset();

  const Deadline deadline = Deadline::after(kDeadline);
  const std::string text = read_errors(errors.ours.get(), deadline);
  if (wait_for(child, !deadline.passed()) == 0) return {};
  const bool busy = text.find("busy") != std::string::npos;
  return fail(busy ? ErrorCode::kBusy : ErrorCode::kNotPermitted, "unmount " + mountpoint + ": " + text);
}

}  // namespace inductorfs::fuse
