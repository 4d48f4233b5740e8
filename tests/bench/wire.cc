// SPDX-License-Identifier: Apache-2.0
// A link to a Redis: a TCP port of loopback whose bytes arrive late and not all at once.
//
//   wire SOCKET|PORT ONE_WAY_MICROSECONDS BYTES_PER_SECOND      0: no delay, no limit
//
// Prints the port, then relays until its standard input ends. All connections share the limit, each direction has its
// own, as on a network card. Bytes leave in the order in which they came.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <list>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::duration_cast;

constexpr size_t kPiece = size_t{64} << 10;
/// Of one direction of a connection: what a socket of either end would hold.
constexpr size_t kWindow = size_t{8} << 20;

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "wire: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

struct Link {
  std::chrono::nanoseconds delay;
  double bytes_per_second;
  Clock::time_point free{};  ///< when the last byte has left the sender

  [[nodiscard]] Clock::time_point arrival(size_t bytes) {
    const auto now = Clock::now();
    if (bytes_per_second <= 0) return now + delay;
    const std::chrono::duration<double> takes(static_cast<double>(bytes) / bytes_per_second);
    free = std::max(free, now) + duration_cast<Clock::duration>(takes);
    return free + delay;
  }
};

/// One direction of one connection.
struct Flow {
  struct Piece {
    Clock::time_point due;
    std::string bytes;
  };
  int from = -1;
  int to = -1;
  Link* link = nullptr;
  std::deque<Piece> pieces{};
  size_t held = 0;
  bool ended = false;  ///< the sender has nothing more
  bool broken = false;

  void take() {
    std::array<char, kPiece> buffer{};
    const ssize_t got = ::recv(from, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
      ended = true;
      return;
    }
    const auto size = static_cast<size_t>(got);
    pieces.push_back({link->arrival(size), std::string(buffer.data(), size)});
    held += size;
  }
  void give(Clock::time_point now) {
    while (!pieces.empty() && pieces.front().due <= now) {
      std::string& bytes = pieces.front().bytes;
      const ssize_t sent = ::send(to, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0) {
        broken = errno != EAGAIN && errno != EINTR;
        return;
      }
      held -= static_cast<size_t>(sent);
      bytes.erase(0, static_cast<size_t>(sent));
      if (!bytes.empty()) return;
      pieces.pop_front();
    }
  }
  [[nodiscard]] bool is_blocked(Clock::time_point now) const { return !pieces.empty() && pieces.front().due <= now; }
  [[nodiscard]] bool is_over() const { return broken || (ended && pieces.empty()); }
};

struct Pair {
  Flow up;
  Flow down;
};

int connect_to_port(const char* port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(port)));
  const int file = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (file < 0 || ::connect(file, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) die(port);
  const int one = 1;
  ::setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return file;
}

/// A path of a Unix socket, or a port of loopback.
int connect_to(const char* path) {
  if (path[0] != '/') return connect_to_port(path);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  const int file = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (file < 0 || ::connect(file, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) die(path);
  return file;
}

int listen_on_loopback() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int file = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (file < 0 || ::bind(file, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(file, 512) != 0) {
    die("listen");
  }
  socklen_t size = sizeof address;
  ::getsockname(file, reinterpret_cast<sockaddr*>(&address), &size);
  std::printf("%u\n", ntohs(address.sin_port));
  std::fflush(stdout);
  return file;
}

class Relay {
 public:
  Relay(const char* target, Link up, Link down)
      : target_(target), up_(up), down_(down), listener_(listen_on_loopback()) {}

  /// Returns false when the standard input has ended.
  bool turn() {
    const auto now = Clock::now();
    std::vector<pollfd> wanted = {{STDIN_FILENO, POLLIN, 0}, {listener_, POLLIN, 0}};
    auto next = now + std::chrono::seconds(1);
    for (Pair& pair : pairs_) {
      for (Flow* flow : {&pair.up, &pair.down}) {
        if (!flow->ended && flow->held < kWindow) wanted.push_back({flow->from, POLLIN, 0});
        if (flow->is_blocked(now))
          wanted.push_back({flow->to, POLLOUT, 0});
        else if (!flow->pieces.empty())
          next = std::min(next, flow->pieces.front().due);
      }
    }
    const auto wait = duration_cast<std::chrono::nanoseconds>(std::max(next - now, Clock::duration{}));
    const timespec patience{wait.count() / 1'000'000'000, wait.count() % 1'000'000'000};
    if (::ppoll(wanted.data(), wanted.size(), &patience, nullptr) < 0 && errno != EINTR) die("poll");
    if (wanted[0].revents != 0) return false;
    if (wanted[1].revents != 0) accept();
    move();
    return true;
  }

 private:
  void accept() {
    const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) return;
    const int one = 1;
    ::setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    const int server = connect_to(target_);
    pairs_.push_back({Flow{client, server, &up_}, Flow{server, client, &down_}});
  }
  void move() {
    for (auto pair = pairs_.begin(); pair != pairs_.end();) {
      for (Flow* flow : {&pair->up, &pair->down}) {
        while (!flow->ended && flow->held < kWindow && is_readable(flow->from)) flow->take();
        flow->give(Clock::now());
      }
      if (!pair->up.is_over() && !pair->down.is_over()) {
        ++pair;
        continue;
      }
      ::close(pair->up.from);
      ::close(pair->down.from);
      pair = pairs_.erase(pair);
    }
  }
  static bool is_readable(int file) {
    pollfd one{file, POLLIN, 0};
    return ::poll(&one, 1, 0) == 1;
  }

  const char* target_;
  Link up_;
  Link down_;
  int listener_;
  std::list<Pair> pairs_;
};

}  // namespace

int main(int count, char** words) {
  if (count != 4) {
    std::fprintf(stderr, "usage: wire SOCKET|PORT ONE_WAY_MICROSECONDS BYTES_PER_SECOND\n");
    return 2;
  }
  const Link link{std::chrono::microseconds(std::atol(words[2])), std::atof(words[3])};
  Relay relay(words[1], link, link);
  while (relay.turn()) {
  }
  return 0;
}
