// SPDX-License-Identifier: Apache-2.0
#include "transport.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

namespace inductorfs::redis {
namespace {

class PlainTransport final : public Transport {
 public:
  explicit PlainTransport(Fd socket) : socket_(std::move(socket)) {}
  Result<size_t> read(char* out, size_t size) override { return receive_now(socket_.get(), out, size); }
  Result<size_t> write(std::string_view bytes) override { return send_now(socket_.get(), bytes); }
  short read_events() const override { return POLLIN; }
  int fd() const override { return socket_.get(); }
  bool idle_ok() const override { return idle_state(socket_.get()) == Idle::kQuiet; }

 private:
  Fd socket_;
};

// Whatever errno says, to the caller it is one thing: this connection is gone.
tl::unexpected<Error> lost(std::string_view operation, int saved_errno) {
  return fail(ErrorCode::kUnavailable, error_from_errno(saved_errno, operation).what());
}

}  // namespace

Result<bool> wait_ready(int fd, short events, const Wait& wait) {
  pollfd entry{fd, events, 0};
  return wait_any({&entry, 1}, wait);
}

Result<bool> wait_any(std::span<pollfd> entries, const Wait& wait) {
  while (true) {
    if (wait.is_cancelled()) return fail(ErrorCode::kBusy, "cancelled");
    const auto left = std::min<Milliseconds::rep>(wait.slice().left().count(), std::numeric_limits<int>::max());
    const int ready = ::poll(entries.data(), entries.size(), static_cast<int>(left));
    if (ready > 0) return true;  // POLLERR and POLLHUP too: the next read or write says what it is
    if (ready == 0 && wait.end().passed()) return false;
    if (ready < 0 && errno != EINTR) return fail_errno("poll");
  }
}

Result<size_t> receive_now(int fd, char* out, size_t size) {
  const ssize_t got = ::recv(fd, out, size, MSG_DONTWAIT);
  if (got > 0) return static_cast<size_t>(got);
  if (got == 0) return fail(ErrorCode::kUnavailable, "the server has closed the connection");
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return size_t{0};
  return lost("recv", errno);
}

Result<size_t> send_now(int fd, std::string_view bytes) {
  const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0) return static_cast<size_t>(sent);
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return size_t{0};
  return lost("send", errno);
}

Idle idle_state(int fd) {
  char byte = 0;
  const ssize_t got = ::recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got > 0) return Idle::kBytes;
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return Idle::kQuiet;
  return Idle::kClosed;
}

std::unique_ptr<Transport> make_plain_transport(Fd socket) {
  return std::make_unique<PlainTransport>(std::move(socket));
}

}  // namespace inductorfs::redis
