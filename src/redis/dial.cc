// SPDX-License-Identifier: Apache-2.0
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "inductorfs/base/guarded.h"
#include "transport.h"

namespace inductorfs::redis {
namespace {

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
};
using Addresses = std::vector<Address>;

/// Threads that hang in getaddrinfo(3), which knows no deadline (resolv.conf's default is 2 x 5 s for each server).
constexpr int kResolverLimit = 4;
std::atomic<int> resolvers{0};
constexpr Milliseconds kLeastPerAddress{50};
constexpr int kKeepAliveIdleSeconds = 30;
constexpr int kKeepAliveIntervalSeconds = 10;
constexpr int kKeepAliveProbes = 3;

Result<Addresses> look_up(const std::string& host, uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error != 0) {
    return fail(ErrorCode::kUnavailable, "cannot resolve " + host + ": " + std::string(::gai_strerror(error)));
  }
  Addresses addresses;
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    Address address;
    if (at->ai_addrlen > sizeof address.storage) continue;
    std::memcpy(&address.storage, at->ai_addr, at->ai_addrlen);
    address.size = at->ai_addrlen;
    addresses.push_back(address);
  }
  ::freeaddrinfo(list);
  return addresses;
}

// Runs `work` in a thread that nobody joins: getaddrinfo cannot be cancelled. All signals are the daemon's, not its.
void start_detached(std::function<void()> work) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(std::move(work)).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Result<Addresses> resolve(const std::string& host, uint16_t port, const Wait& wait) {
  if (auto numeric = look_up(host, port, AI_NUMERICHOST)) return numeric;
  if (resolvers.fetch_add(1) >= kResolverLimit) {
    resolvers.fetch_sub(1);
    return fail(ErrorCode::kUnavailable, "cannot resolve " + host + ": earlier questions are still without an answer");
  }
  using Answer = std::optional<Result<Addresses>>;
  auto answer = std::make_shared<Guarded<Answer>>();  // shared: the thread may outlive this call
  start_detached([host, port, answer] {
    auto found = look_up(host, port, AI_ADDRCONFIG);
    answer->notify_with([&](Answer& slot) { slot = std::move(found); });
    resolvers.fetch_sub(1);
  });
  while (!wait.is_cancelled()) {
    auto found = answer->wait_until(
        wait.slice().at(), [](const Answer& slot) { return slot.has_value(); },
        [](Answer& slot) { return std::move(slot); });
    if (found) return std::move(*found);
    if (wait.end().passed()) return fail(ErrorCode::kTimedOut, "no answer in time to the name " + host);
  }
  return fail(ErrorCode::kBusy, "cancelled");
}

// TCP only. Small commands must not wait for an acknowledgement, and a host that vanished must be noticed.
void tune_tcp(int fd) {
  const auto set = [fd](int level, int option, int value) {
    // A socket without an option works all the same.
    (void)::setsockopt(fd, level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdleSeconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveIntervalSeconds);
  set(IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveProbes);
}

Result<Fd> connect_to(const Address& address, const std::string& name, const Wait& wait) {
  Fd socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return fail_errno("socket", name);
  if (address.storage.ss_family != AF_UNIX) tune_tcp(socket.get());
  const auto refused = [&](int error) {
    return fail(ErrorCode::kUnavailable, "connect " + name + ": " + std::string(std::strerror(error)));
  };
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.size) == 0) return socket;
  // EAGAIN is a Unix socket whose backlog is full: poll would call it writable at once, so it counts as refused.
  if (errno != EINPROGRESS) return refused(errno);
  INDUCTORFS_TRY_ASSIGN(const auto ready, wait_ready(socket.get(), POLLOUT, wait));
  if (!ready) return fail(ErrorCode::kTimedOut, "connect " + name + ": no answer in time");
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error != 0) return refused(error);
  return socket;
}

Result<Fd> connect_to_path(const std::string& path, const Wait& wait) {
  Address address;
  auto* name = reinterpret_cast<sockaddr_un*>(&address.storage);
  if (path.size() >= sizeof name->sun_path) {
    return fail(ErrorCode::kInvalid,
                "the socket's path is longer than " + std::to_string(sizeof name->sun_path - 1) + " bytes: " + path);
  }
  name->sun_family = AF_UNIX;
  std::memcpy(name->sun_path, path.c_str(), path.size() + 1);
  address.size = sizeof(sockaddr_un);
  return connect_to(address, path, wait);
}

}  // namespace

Result<Fd> connect_unix(const std::string& path, Deadline deadline) { return connect_to_path(path, {deadline}); }

Result<Fd> connect_socket(const Endpoint& endpoint, const Wait& wait) {
  if (!endpoint.socket_path.empty()) {
    return endpoint.socket_source ? endpoint.socket_source(wait.end(), [&wait] { return wait.is_cancelled(); })
                                  : connect_to_path(endpoint.socket_path, wait);
  }
  INDUCTORFS_TRY_ASSIGN(auto addresses, resolve(endpoint.host, endpoint.port, wait));
  const std::string name = endpoint.host + ":" + std::to_string(endpoint.port);
  Result<Fd> last = fail(ErrorCode::kUnavailable, "connect " + name + ": the name has no address");
  for (size_t i = 0; i < addresses.size(); ++i) {
    // Each address gets its share, so that a silent first one leaves time for the others.
    const auto share = wait.end().left() / static_cast<Milliseconds::rep>(addresses.size() - i);
    last = connect_to(addresses[i], name, wait.earlier(std::max(share, kLeastPerAddress)));
    if (last || wait.end().passed() || wait.is_cancelled()) return last;
  }
  return last;
}

}  // namespace inductorfs::redis
