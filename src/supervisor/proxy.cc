// SPDX-License-Identifier: Apache-2.0
#include "proxy.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <new>
#include <utility>

#include "inductorfs/base/own_user.h"
#include "inductorfs/supervisor/protocol.h"
#include "line.h"

namespace inductorfs::supervisor {
namespace {

constexpr const char* kName = "proxy";
/// Connections of one user, and of all.
constexpr size_t kMostOfUser = 4;
constexpr size_t kMostVisits = 32;
/// For a guest to take the end of its answer.
constexpr Time kPatience = 5000;
constexpr Time kFirstPause = 1000;  ///< before another try to start it; each is twice as long as the one before
constexpr Time kLongestPause = 64'000;
constexpr int kTick = 100;  ///< between two tries to hand a guest over
constexpr size_t kRoom = size_t{16} << 10;
constexpr short kAlways = POLLHUP | POLLERR;

/// What has been read here and not been written there yet. Needs external synchronisation.
class Flow {
 public:
  [[nodiscard]] bool empty() const { return begin_ == end_; }
  [[nodiscard]] size_t size() const { return end_ - begin_; }
  void clear() { begin_ = end_ = 0; }
  /// Reads when there is nothing. False: nothing more will come.
  bool fill(int from) {
    if (!empty()) return true;
    // Descriptors that come along are closed here, which may wait for whoever has sent them.
    const ssize_t got = ::recv(from, room_.data(), room_.size(), MSG_DONTWAIT);
    begin_ = 0;
    end_ = got > 0 ? static_cast<size_t>(got) : 0;
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
  }
  /// Writes as much as there is room for. False: nobody will read it.
  bool drain(int to) {
    while (!empty()) {
      const ssize_t sent = ::send(to, room_.data() + begin_, end_ - begin_, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0) return errno == EAGAIN || errno == EINTR;
      begin_ += static_cast<size_t>(sent);
    }
    return true;
  }

 private:
  std::array<char, kRoom> room_;
  size_t begin_ = 0;
  size_t end_ = 0;
};

/// One connection of a guest, until whoever serves has ended with it: who hangs up makes no room for his next one
/// before. Needs external synchronisation.
struct Visit {
  Guest guest;
  Fd outside;  ///< to the guest; none: it has hung up
  Fd inside;   ///< to whoever serves; none: this place is free
  Fd theirs;   ///< the other end of that, until it is handed over
  Flow request;
  Flow answer;
  bool is_asked = false;     ///< the guest says nothing more
  bool is_answered = false;  ///< whoever serves says nothing more
  Time until = 0;            ///< for the guest to take more of its answer

  void begin(Fd connection, Fd here, Fd there, const Guest& who);
  void end();
  void hang_up();
  /// Passes on what there is. False: it has ended.
  [[nodiscard]] bool go_on(short outside_events, short inside_events);
  [[nodiscard]] bool hear(short outside_events);
  [[nodiscard]] bool tell();
};

void Visit::begin(Fd connection, Fd here, Fd there, const Guest& who) {
  guest = who;
  outside = std::move(connection);
  inside = std::move(here);
  theirs = std::move(there);
  request.clear();
  answer.clear();
  is_asked = is_answered = false;
}

void Visit::end() {
  inside.reset();
  theirs.reset();
  outside.reset();  // last: it may wait
}

/// Whoever serves sees it, and what is still said is heard by nobody.
void Visit::hang_up() {
  is_asked = true;
  request.clear();
  (void)::shutdown(inside.get(), SHUT_WR);
  outside.reset();
}

/// False: the guest has gone.
bool Visit::hear(short outside_events) {
  if ((outside_events & kAlways) != 0) return false;
  if (!is_asked && (outside_events & POLLIN) != 0 && !request.fill(outside.get())) is_asked = true;
  if (!request.drain(inside.get())) request.clear();  // whoever serves may answer all the same
  if (is_asked && request.empty()) (void)::shutdown(inside.get(), SHUT_WR);
  return true;
}

/// False: the guest has gone, or takes nothing.
bool Visit::tell() {
  const size_t before = answer.size();
  if (!answer.drain(outside.get())) return false;
  if (answer.size() < before) until = now() + kPatience;
  return answer.empty() || now() < until;
}

bool Visit::go_on(short outside_events, short inside_events) {
  if (outside && !hear(outside_events)) hang_up();
  if (!outside && theirs) return false;  // nobody serves it yet
  if (!outside) answer.clear();
  if (answer.empty()) until = now() + kPatience;
  if (!is_answered && (inside_events & (POLLIN | kAlways)) != 0 && !answer.fill(inside.get())) is_answered = true;
  if (outside && !tell()) hang_up();
  return !is_answered || (outside && !answer.empty());
}

bool read_guest(int connection, Guest& guest) {
  ucred who{};
  socklen_t size = sizeof who;
  if (::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) return false;
  guest.uid = who.uid;
  guest.pid = who.pid;
  size = sizeof guest.groups - sizeof(gid_t);
  // Linux 4.13; with less groups than it has a guest is told less.
  if (::getsockopt(connection, SOL_SOCKET, SO_PEERGROUPS, guest.groups.data(), &size) != 0) size = 0;
  guest.group_count = size / sizeof(gid_t);
  guest.groups.at(guest.group_count++) = who.gid;
  return true;
}

/// The proxy's process. Confined to one thread; nothing here allocates.
class Porter {
 public:
  Porter(int listener, int channel) : listener_(listener), channel_(channel) {}
  void run() {
    while (turn()) {
    }
  }

 private:
  /// False: nobody is left who could answer.
  bool turn() {
    std::array<pollfd, 2 + 2 * kMostVisits> items;
    bool waits = false;
    items[0] = {listener_, POLLIN, 0};
    items[1] = {channel_, 0, 0};
    for (size_t i = 0; i < visits_.size(); ++i) {
      const Visit& visit = visits_[i];
      const bool hears = !visit.is_asked && visit.request.empty();
      const bool tells = visit.outside && !visit.answer.empty();
      items[2 + 2 * i] = {visit.outside.get(), static_cast<short>((hears ? POLLIN : 0) | (tells ? POLLOUT : 0)), 0};
      items[3 + 2 * i] = {visit.is_answered || tells ? -1 : visit.inside.get(),
                          static_cast<short>(POLLIN | (visit.request.empty() ? 0 : POLLOUT)), 0};
      waits = waits || visit.theirs || tells;
    }
    (void)::poll(items.data(), items.size(), waits ? kTick : -1);  // an interruption is a turn, too
    if ((items[1].revents & kAlways) != 0) return false;
    for (size_t i = 0; i < visits_.size(); ++i) {
      Visit& visit = visits_[i];
      if (!visit.inside) continue;
      if (visit.theirs && send_guest(channel_, visit.guest, visit.theirs.get())) visit.theirs.reset();
      if (!visit.go_on(items[2 + 2 * i].revents, items[3 + 2 * i].revents)) visit.end();
    }
    if (items[0].revents != 0) accept_all();
    return true;
  }

  void accept_all() {
    constexpr int kAtOnce = 64;
    for (int i = 0; i < kAtOnce; ++i) {
      Fd connection(::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!connection) {
        // Without a free descriptor the listener stays readable.
        if (errno != EAGAIN && errno != EINTR) (void)::poll(nullptr, 0, kTick);
        return;
      }
      admit(std::move(connection));
    }
  }

  void admit(Fd connection) {
    static Guest guest;
    pollfd item{connection.get(), 0, 0};
    if (::poll(&item, 1, 0) > 0 && (item.revents & kAlways) != 0) return;  // it waits for no answer
    if (!read_guest(connection.get(), guest)) return;
    const auto taken =
        std::ranges::count_if(visits_, [](const Visit& visit) { return visit.inside && visit.guest.uid == guest.uid; });
    const auto free = std::ranges::find_if(visits_, [](const Visit& visit) { return !visit.inside; });
    int ends[2];
    if (static_cast<size_t>(taken) >= kMostOfUser || free == visits_.end() ||
        ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
      return refuse(connection.get(), guest.uid);
    }
    free->begin(std::move(connection), Fd(ends[0]), Fd(ends[1]), guest);
    if (send_guest(channel_, guest, free->theirs.get())) free->theirs.reset();
  }

  static void refuse(int connection, uid_t uid) {
    std::array<char, 256> text{};
    const int size =
        std::snprintf(text.data(), text.size(),
                      "{\"ok\":false,\"code\":\"busy\",\"error\":\"too many requests of the user %u, or of "
                      "all users, are under way at this mount: wait until they have ended\"}\n",
                      uid);
    (void)::send(connection, text.data(), static_cast<size_t>(size), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  const int listener_;
  const int channel_;
  std::array<Visit, kMostVisits> visits_;
};

}  // namespace

void pass_on_guests(int listener, int channel) {
  // One for the process: a megabyte of rooms, of which it touches what it uses.
  alignas(Porter) static std::array<char, sizeof(Porter)> place;
  (new (place.data()) Porter(listener, channel))->run();
}

void Proxy::open() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
  worker_end_ = out_of_the_way(Fd(ends[0]));
  own_end_ = out_of_the_way(Fd(ends[1]));
}

void Proxy::serve(Fd listener, char* name, const WorkerIds& user) {
  if (!own_end_) return;
  // Whoever closes a listener last closes what waits at it: the next proxy, when it ends.
  Fd earlier = std::exchange(listener_, out_of_the_way(std::move(listener)));
  const pid_t old = std::exchange(pid_, -1);
  start(name, user, earlier.get());
  if (pid_ < 0) (void)earlier.release();
  if (old <= 0) return;
  (void)::kill(old, SIGKILL);
  remains_.add(old);
}

void Proxy::start(char* name, const WorkerIds& user, int earlier) {
  pid_ = ::fork();
  if (pid_ == 0) {
    rename_process(name, kName);
    go_first();
    // Where no other user serves: what it does takes no right.
    const bool is_server = user.uid == 0 ? keep_capabilities({}).has_value() : become_server(user);
    const bool ready = is_server && (earlier < 0 ? keep_only({listener_.get(), own_end_.get()})
                                                 : keep_only({listener_.get(), own_end_.get(), earlier}));
    if (ready) pass_on_guests(0, 1);
    ::_exit(0);
  }
  due_ = 0;
  if (pid_ > 0) return;
  log_line("error", "supervisor.proxy_not_started errno=%d action=\"another try\"", errno);
  try_later();
}

void Proxy::keep(char* name, const WorkerIds& user) {
  remains_.reap();
  int status = 0;
  if (pid_ > 0 && ::waitpid(pid_, &status, WNOHANG) == pid_) {
    pid_ = -1;
    log_line("error", "supervisor.proxy_ended action=\"another one\"");
    pause_ = WIFSIGNALED(status) ? 0 : pause_;  // by itself it ends when it cannot do it
    try_later();
  }
  if (due_ != 0 && now() >= due_) start(name, user);
}

void Proxy::try_later() {
  due_ = now() + pause_;
  pause_ = std::clamp(2 * pause_, kFirstPause, kLongestPause);
}

Time Proxy::rest(Time now) const { return due_ == 0 ? -1 : std::max<Time>(due_ - now, 0); }

void Proxy::leave() {
  // The end of a process waits for less than a close does.
  if (pid_ <= 0) (void)listener_.release();
  listener_.reset();
}

}  // namespace inductorfs::supervisor
