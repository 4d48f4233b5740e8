// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <list>
#include <map>
#include <optional>
#include <vector>

#include "inductorfs/base/guarded.h"
#include "inductorfs/base/log.h"
#include "inductorfs/base/message.h"
#include "inductorfs/base/thread.h"
#include "inductorfs/control/control.h"
#include "inductorfs/control/requests.h"
#include "inductorfs/control/runtime_directory.h"
#include "inductorfs/control/socket.h"

namespace inductorfs::control {
namespace {

/// Accepting takes microseconds; what does not fit is told to come again (ask()).
constexpr int kBacklog = 1024;
/// Connections of root, and as many of the user who mounted.
constexpr size_t kOwnConnections = 64;
/// Of each other user, and of all of them together.
constexpr size_t kOthersConnections = 4;
constexpr size_t kAllOthersConnections = 32;
constexpr Milliseconds kAcceptTick{200};

std::optional<ucred> credentials_of(int fd) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return std::nullopt;
  return credentials;
}

/// All groups of the process that has connected.
std::vector<gid_t> groups_of(int fd, const ucred& credentials) {
  std::vector<gid_t> groups(NGROUPS_MAX);
  auto size = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size) != 0) size = 0;
  groups.resize(size / sizeof(gid_t));
  groups.push_back(credentials.gid);
  return groups;
}

/// Who has how many connections. Safe for concurrent use.
class Guests {
 public:
  explicit Guests(uid_t owner) : owner_(owner) {}
  /// A connection's place among those of its user, until it goes.
  class Seat {
   public:
    Seat(Guests& guests, uid_t uid) : guests_(guests), uid_(uid) {}
    ~Seat() { guests_.leave(uid_); }
    Seat(const Seat&) = delete;
    Seat& operator=(const Seat&) = delete;

   private:
    Guests& guests_;
    uid_t uid_;
  };

  [[nodiscard]] bool is_own(uid_t uid) const { return uid == 0 || uid == owner_; }

  /// Null when the user has enough: what others do takes no place from root and the owner.
  std::unique_ptr<Seat> admit(uid_t uid) {
    const bool own = is_own(uid);
    const bool admitted = seats_.with([&](std::map<uid_t, size_t>& seats) {
      size_t all_others = 0;
      for (const auto& [user, taken] : seats) all_others += is_own(user) ? 0 : taken;
      const auto here = seats.find(uid);
      const size_t taken = here == seats.end() ? 0 : here->second;
      if (taken >= (own ? kOwnConnections : kOthersConnections)) return false;
      if (!own && all_others >= kAllOthersConnections) return false;
      ++seats[uid];
      return true;
    });
    return admitted ? std::make_unique<Seat>(*this, uid) : nullptr;
  }

 private:
  void leave(uid_t uid) {
    seats_.with([&](std::map<uid_t, size_t>& seats) {
      if (--seats[uid] == 0) seats.erase(uid);
    });
  }

  const uid_t owner_;
  Guarded<std::map<uid_t, size_t>> seats_;
};

/// One client, from its connection to its answer. Handed from the accepting thread to the one that answers.
struct Client {
  std::unique_ptr<Guests::Seat> seat;
  Fd connection;
  Peer peer;
  std::string line;
  Deadline deadline;
  /// Only of root and the owner one is taken: to close a file of somebody else's may wait for his file system.
  bool gives_descriptor = false;
};

enum class Read { kMore, kWhole, kOver };

/// What has come of the request; waits for nothing.
Read read_request(Client& client) {
  while (true) {
    std::array<char, 16384> piece{};
    Fd descriptor;
    const ssize_t got = client.gives_descriptor
                            ? receive_message(client.connection.get(), piece, {&descriptor, 1}, MSG_DONTWAIT).size
                            : ::recv(client.connection.get(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (descriptor) client.peer.descriptor = std::make_shared<const Fd>(std::move(descriptor));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return Read::kMore;
    if (got <= 0) return Read::kOver;
    const std::string_view fresh(piece.data(), static_cast<size_t>(got));
    const size_t newline = fresh.find('\n');
    client.line.append(fresh.substr(0, newline));
    if (client.line.size() > kRequestLimit) return Read::kOver;
    if (newline != std::string_view::npos) return Read::kWhole;
  }
}

Guarded<std::vector<int>>& held_connections() {
  static auto* const held = new Guarded<std::vector<int>>;  // until this process ends
  return *held;
}

class SocketServer final : public ControlServer {
 public:
  SocketServer(Fd listener, RequestHandler handler, uid_t owner)
      : listener_(std::move(listener)),
        stop_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        handler_(std::move(handler)),
        guests_(owner),
        acceptor_(start_thread("control-accept", [this](const std::stop_token& stop) { accept_until(stop); })) {}

  ~SocketServer() override { stop(); }

  [[nodiscard]] int listener() const override { return listener_.get(); }

  void stop() override {
    if (stopped_.exchange(true)) return;
    acceptor_.request_stop();
    (void)::eventfd_write(stop_event_.get(), 1);  // without an event (no descriptor was left) the tick ends the poll
    acceptor_.join();
    silent_.clear();
    answering_.clear();  // joins
  }

 private:
  struct Answering {
    std::jthread thread;
    std::shared_ptr<std::atomic<bool>> done;
  };

  /// Reads what clients send as it comes: one that sends nothing holds no thread.
  void accept_until(const std::stop_token& stop) {
    std::vector<pollfd> items;
    while (!stop.stop_requested()) {
      items.assign({pollfd{listener_.get(), POLLIN, 0}, pollfd{stop_event_.get(), POLLIN, 0}});
      for (const Client& client : silent_) items.push_back({client.connection.get(), POLLIN, 0});
      (void)::poll(items.data(), items.size(), static_cast<int>(kAcceptTick.count()));
      std::erase_if(answering_, [](const Answering& one) { return one.done->load(); });
      auto item = items.begin() + 2;
      for (auto client = silent_.begin(); client != silent_.end(); ++item) {
        const auto here = client++;
        const Read read = item->revents == 0 ? Read::kMore : read_request(*here);
        if (read == Read::kWhole) answer(std::move(*here));
        if (read != Read::kMore || here->deadline.passed()) silent_.erase(here);
      }
      if (items.front().revents != 0) accept_all();
    }
  }

  void accept_all() {
    while (true) {
      Fd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!connection) {
        // Out of descriptors: the connection stays readable, and this must not spin until some are free.
        if (errno != EAGAIN && errno != EINTR) (void)wait_for(-1, 0, Deadline::after(kAcceptTick));
        return;
      }
      admit(std::move(connection));
    }
  }

  /// Who has hung up waits for no answer, and takes nobody's place.
  void admit(Fd connection) {
    pollfd item{connection.get(), 0, 0};
    if (::poll(&item, 1, 0) > 0 && (item.revents & POLLHUP) != 0) return;
    const std::optional<ucred> credentials = credentials_of(connection.get());
    if (!credentials) return;
    std::unique_ptr<Guests::Seat> seat = guests_.admit(credentials->uid);
    if (!seat) {
      (void)send_line(connection.get(), refuse_crowd(credentials->uid),
                      Deadline::after(Milliseconds(0)));  // as far as there is room
      return;
    }
    Client client{std::move(seat), std::move(connection), {}, {}, Deadline::after(kPeerPatience)};
    client.gives_descriptor = guests_.is_own(credentials->uid);
    if (client.gives_descriptor) (void)pass_rights(client.connection.get(), true);
    client.peer.uid = credentials->uid;
    client.peer.pid = credentials->pid;
    client.peer.groups = groups_of(client.connection.get(), *credentials);
    client.peer.gone = [fd = client.connection.get()] {
      // Nothing may follow a request, so anything readable is the end.
      pollfd item{fd, POLLIN | POLLRDHUP, 0};
      return ::poll(&item, 1, 0) > 0;
    };
    silent_.push_back(std::move(client));
  }

  void answer(Client client) {
    auto done = std::make_shared<std::atomic<bool>>(false);
    const auto shared = std::make_shared<Client>(std::move(client));
    answering_.push_back({start_thread("control",
                                       [this, shared, done](const std::stop_token&) {
                                         serve(*shared);
                                         *done = true;
                                       }),
                          done});
  }

  void serve(Client& client) {
    const Answer answer = handler_(client.line, client.peer);
    const Result<void> sent = send_line(client.connection.get(), answer.line, Deadline::after(kPeerPatience));
    if (!sent) log::debug("control.answer_lost", {{"why", sent.error().what()}});
    // Closed by the kernel when this process ends, which is what the client waits for.
    if (answer.hold_until_exit) {
      held_connections().with([&](std::vector<int>& held) { held.push_back(client.connection.release()); });
    }
  }

  Fd listener_;
  Fd stop_event_;
  RequestHandler handler_;
  Guests guests_;
  std::list<Client> silent_;        ///< those whose request is not whole yet: the accepting thread's
  std::list<Answering> answering_;  ///< the accepting thread's, and stop()'s after that
  std::jthread acceptor_;
  std::atomic<bool> stopped_{false};
};

}  // namespace

void tell_those_who_hold(std::string_view line) {
  held_connections().with([&](const std::vector<int>& held) {
    for (const int connection : held) {
      (void)send_line(connection, line, Deadline::after(Milliseconds(0)));  // who has gone misses nothing
      (void)::shutdown(connection, SHUT_RDWR);                              // a thread may keep this process
    }
  });
}

std::unique_ptr<ControlServer> ControlServer::open(Fd listener, RequestHandler handler, uid_t owner) {
  // Once more: from now on it is this process that clients see as its peer (SO_PEERCRED), and may be told to kill.
  (void)::listen(listener.get(), kBacklog);  // it listens already
  return std::make_unique<SocketServer>(std::move(listener), std::move(handler), owner);
}

Result<Fd> listen(const std::string& path) {
  INDUCTORFS_TRY(prepare_runtime_directory(path.substr(0, path.rfind('/'))));
  if (is_served(path)) {
    return fail(ErrorCode::kBusy, "control socket: " + path + ": another daemon serves this mountpoint: unmount it");
  }
  return listen_at(path, kBacklog);
}

}  // namespace inductorfs::control
