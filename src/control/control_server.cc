// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <list>
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
#include "inductorfs/supervisor/protocol.h"

namespace inductorfs::control {
namespace {

/// Accepting takes microseconds; what does not fit is told to come again (ask()).
constexpr int kBacklog = 1024;
/// Connections of root, as many of the user who mounted, and as many of all others, of whom the proxy lets less come.
constexpr size_t kMostConnections = 64;
enum Kind : size_t { kRoot, kOwner, kGuests };
constexpr Milliseconds kAcceptTick{200};
constexpr ptrdiff_t kOfServer = 3;  ///< descriptors that are no client's

std::optional<Peer> peer_at(int connection) {
  ucred who{};
  socklen_t size = sizeof who;
  if (::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) return std::nullopt;
  Peer peer;
  peer.uid = who.uid;
  peer.pid = who.pid;
  return peer;
}

/// Counts a connection until it goes.
class Place {
 public:
  explicit Place(std::atomic<size_t>& count) : count_(count) { ++count_; }
  ~Place() { --count_; }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

 private:
  std::atomic<size_t>& count_;
};

/// One client, from its connection to its answer. Handed from the accepting thread to the one that answers.
struct Client {
  std::unique_ptr<Place> place;  ///< among those of its kind
  Fd connection;
  Peer peer;
  std::string line;
  Deadline deadline;
};

enum class Read { kMore, kWhole, kOver };

/// What has come of the request; waits for nothing.
Read read_request(Client& client) {
  while (true) {
    std::array<char, 16384> piece{};
    Fd descriptor;
    const ssize_t got = receive_message(client.connection.get(), piece, {&descriptor, 1}, MSG_DONTWAIT).size;
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
  SocketServer(Fd listener, RequestHandler handler, int guests)
      : listener_(std::move(listener)),
        guests_(guests),
        stop_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        handler_(std::move(handler)),
        acceptor_(start_thread("control-accept", [this](const std::stop_token& stop) { accept_until(stop); })) {}

  ~SocketServer() override { stop(); }

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
      items.assign(
          {pollfd{listener_.get(), POLLIN, 0}, pollfd{stop_event_.get(), POLLIN, 0}, pollfd{guests_, POLLIN, 0}});
      for (const Client& client : silent_) items.push_back({client.connection.get(), POLLIN, 0});
      (void)::poll(items.data(), items.size(), static_cast<int>(kAcceptTick.count()));
      std::erase_if(answering_, [](const Answering& one) { return one.done->load(); });
      auto item = items.begin() + kOfServer;
      for (auto client = silent_.begin(); client != silent_.end(); ++item) {
        const auto here = client++;
        const Read read = item->revents == 0 ? Read::kMore : read_request(*here);
        if (read == Read::kWhole) answer(std::move(*here));
        if (read != Read::kMore || here->deadline.passed()) silent_.erase(here);
      }
      if (items.front().revents != 0) accept_all();
      if (items[kOfServer - 1].revents != 0) receive_guests();
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
    std::optional<Peer> peer = peer_at(connection.get());
    if (!peer) return;
    const Kind kind = peer->uid == 0 ? kRoot : kOwner;
    seat(std::move(connection), std::move(*peer), kind);
  }

  void seat(Fd connection, Peer peer, Kind kind) {
    auto& admitted = admitted_.at(kind);
    if (admitted.load() >= kMostConnections) return refuse(connection.get());
    peer.gone = [fd = connection.get()] {
      // Nothing may follow a request, so anything readable is the end.
      pollfd item{fd, POLLIN | POLLRDHUP, 0};
      return ::poll(&item, 1, 0) > 0;
    };
    silent_.push_back({std::make_unique<Place>(admitted),
                       std::move(connection),
                       std::move(peer),
                       {},
                       Deadline::after(kPeerPatience)});
  }

  /// As far as there is room.
  static void refuse(int connection) { (void)send_line(connection, refuse_crowd(), Deadline::after(Milliseconds(0))); }

  /// The proxy sees to it that there are not too many of each user.
  void receive_guests() {
    while (true) {
      supervisor::Guest guest;
      Fd connection;
      const supervisor::Receipt receipt = supervisor::receive_guest(guests_, guest, connection);
      if (receipt == supervisor::Receipt::kEnded) guests_ = -1;
      if (receipt != supervisor::Receipt::kWord) return;
      if (!connection) continue;
      const auto groups = guest.groups.begin();
      seat(std::move(connection), {guest.uid, {groups, groups + guest.group_count}, guest.pid, {}, {}}, kGuests);
    }
  }

  void answer(Client client) {
    auto done = std::make_shared<std::atomic<bool>>(false);
    const auto shared = std::make_shared<Client>(std::move(client));
    auto thread = try_start_thread("control", [this, shared, done] {
      serve(*shared);
      *done = true;
    });
    if (!thread) return refuse(shared->connection.get());
    answering_.push_back({std::move(*thread), done});
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
  int guests_;  ///< the accepting thread's
  Fd stop_event_;
  RequestHandler handler_;
  std::array<std::atomic<size_t>, 3> admitted_{};
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

std::unique_ptr<ControlServer> ControlServer::open(Fd listener, RequestHandler handler, int guests) {
  // Once more: from now on it is this process that clients see as its peer (SO_PEERCRED), and may be told to kill.
  (void)::listen(listener.get(), kBacklog);  // it listens already
  return std::make_unique<SocketServer>(std::move(listener), std::move(handler), guests);
}

Result<Fd> listen(const std::string& path) {
  INDUCTORFS_TRY(prepare_runtime_directory(path.substr(0, path.rfind('/'))));
  if (is_served(path)) {
    return fail(ErrorCode::kBusy, "control socket: " + path + ": another daemon serves this mountpoint: unmount it");
  }
  return listen_at(path, kBacklog);
}

std::string guests_path(const std::string& path) { return path + ".guests"; }

Result<Fd> listen_for_guests(const std::string& path) {
  constexpr mode_t kForAll = 0666;
  Result<Fd> listener = listen_at(guests_path(path), kBacklog, kForAll);
  if (listener) (void)refuse_descriptors(listener->get());
  return listener;
}

}  // namespace inductorfs::control
