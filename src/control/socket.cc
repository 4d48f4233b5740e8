// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/control/socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "inductorfs/control/control.h"

namespace inductorfs::control {
namespace {

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return fail(ErrorCode::kNameTooLong, "control socket: " + path + ": set XDG_RUNTIME_DIR to a shorter path");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

Result<Fd> new_socket() {
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fail_errno("socket");
  return fd;
}

const sockaddr* generic(const sockaddr_un& address) { return reinterpret_cast<const sockaddr*>(&address); }

/// One recv: nothing when the call is to be repeated after a poll.
Result<std::optional<size_t>> receive_some(int fd, char* out, size_t size) {
  const ssize_t got = ::recv(fd, out, size, 0);
  if (got >= 0) return std::optional<size_t>(static_cast<size_t>(got));
  if (errno == EAGAIN || errno == EINTR) return std::optional<size_t>();
  return fail(ErrorCode::kUnavailable, std::string("control socket: ") + std::strerror(errno));
}

tl::unexpected<Error> too_late() { return fail(ErrorCode::kTimedOut, "the other end of the control socket is silent"); }

}  // namespace

bool wait_for(int fd, short events, Deadline deadline) {
  while (true) {
    pollfd item{fd, events, 0};
    const int ready = ::poll(&item, 1, static_cast<int>(std::min<int64_t>(deadline.left().count(), 1'000'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return true;  // the call that follows reports it
    if (deadline.passed()) return false;
  }
}

Result<Fd> connect_to(const std::string& path) {
  INDUCTORFS_TRY_ASSIGN(auto address, address_of(path));
  Result<Fd> fd = new_socket();
  if (!fd) return fd;
  if (::connect(fd->get(), generic(address), sizeof address) == 0) return fd;
  if (errno == EACCES) {
    INDUCTORFS_TRY_ASSIGN(address, address_of(guests_path(path)));
    if (::connect(fd->get(), generic(address), sizeof address) == 0) return fd;
  }
  if (errno == ECONNREFUSED) return fail(ErrorCode::kUnavailable, "nobody answers at " + path);
  // Its backlog is full, so it is there but does not come round to accepting.
  if (errno == EAGAIN) return fail(ErrorCode::kBusy, "too many ask at " + path + " already");
  return fail_errno("connect", path);
}

bool refuse_descriptors(int listener) {
  constexpr int kPassRights = 83;  // SO_PASSRIGHTS, include/uapi/asm-generic/socket.h: newer than this system's header
  const int no = 0;
  return ::setsockopt(listener, SOL_SOCKET, kPassRights, &no, sizeof no) == 0;
}

Result<Fd> listen_at(const std::string& path, int backlog, mode_t mode) {
  // No longer than the names of control sockets, so that it fits wherever they do.
  const std::string fresh = path.substr(0, path.rfind('/') + 1) + std::to_string(::getpid()) + kTemporarySuffix;
  INDUCTORFS_TRY(address_of(path));
  INDUCTORFS_TRY_ASSIGN(const auto address, address_of(fresh));
  Result<Fd> fd = new_socket();
  if (!fd) return fd;
  (void)::unlink(fresh.c_str());  // of a killed process that had this one's number
  if (::bind(fd->get(), generic(address), sizeof address) != 0) return fail_errno("bind", path);
  const bool ready = ::chmod(fresh.c_str(), mode) == 0 && ::listen(fd->get(), backlog) == 0 &&
                     ::rename(fresh.c_str(), path.c_str()) == 0;
  if (ready) return fd;
  const Error why = error_from_errno(errno, "listen", path);
  (void)::unlink(fresh.c_str());  // the first error is the one to tell
  return fail(why);
}

Result<std::string> receive_line(int fd, size_t limit, Deadline deadline) {
  std::string line;
  std::array<char, 16384> piece{};
  while (true) {
    if (!wait_for(fd, POLLIN, deadline)) return too_late();
    INDUCTORFS_TRY_ASSIGN(const auto got, receive_some(fd, piece.data(), piece.size()));
    if (!got) continue;
    if (*got == 0) return fail(ErrorCode::kUnavailable, "the other end of the control socket has gone");
    const std::string_view fresh(piece.data(), *got);
    const size_t newline = fresh.find('\n');
    line.append(fresh.substr(0, newline));
    if (line.size() > limit) return fail(ErrorCode::kTooLarge, "a line on the control socket is too long");
    if (newline != std::string_view::npos) return line;
  }
}

Result<void> send_line(int fd, std::string_view line, Deadline deadline) {
  std::string bytes(line);
  bytes.push_back('\n');
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const ssize_t sent = ::send(fd, rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      rest.remove_prefix(static_cast<size_t>(sent));
    } else if (errno != EAGAIN && errno != EINTR) {
      return fail(ErrorCode::kUnavailable, std::string("control socket: ") + std::strerror(errno));
    } else if (!wait_for(fd, POLLOUT, deadline)) {
      return too_late();
    }
  }
  return {};
}

pid_t peer_of(int fd) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 ? credentials.pid : 0;
}

Result<std::string> await_end(int fd, Deadline deadline, Milliseconds silence,
                              const std::function<bool()>& on_silence) {
  constexpr size_t kKept = 16384;
  std::string said;
  std::array<char, 256> piece{};
  Deadline quiet = deadline.earlier(silence);
  while (true) {
    if (!wait_for(fd, POLLIN, quiet)) {
      if (deadline.passed() || !on_silence()) return too_late();
      quiet = deadline.earlier(silence);
      continue;
    }
    const Result<std::optional<size_t>> got = receive_some(fd, piece.data(), piece.size());
    if (!got || (*got && **got == 0)) return said;  // a reset is an end too
    if (*got && said.size() < kKept) said.append(piece.data(), **got);
  }
}

}  // namespace inductorfs::control
