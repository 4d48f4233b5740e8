// SPDX-License-Identifier: Apache-2.0
#include "sentinel.h"

#include <algorithm>
#include <string>
#include <utility>

#include "inductorfs/base/guarded.h"
#include "inductorfs/base/number.h"
#include "inductorfs/base/thread.h"
#include "inductorfs/redis/master_watch.h"

namespace inductorfs::redis {
namespace {

constexpr Milliseconds kLeastPerSentinel{50};

using Kept = std::unique_ptr<Connection>;

Result<HostPort> address_in(const Reply& reply, const std::string& master) {
  if (reply.is_error()) return fail(to_error(reply));
  if (reply.kind == Reply::Kind::kNil) {
    return fail(ErrorCode::kUnavailable, "knows no master " + master + " (SENTINEL MASTERS shows those there are)");
  }
  HostPort address;
  int port = 0;
  if (reply.items.size() == 2) {
    address.host = reply.items[0].text;
    port = leading_number<int>(reply.items[1].text);  // 0 is refused below
  }
  if (address.host.empty() || port <= 0 || port > 65535) {
    return fail(ErrorCode::kCorrupt, "did not answer with a host and a port");
  }
  address.port = static_cast<uint16_t>(port);
  return address;
}

Result<HostPort> ask_over(Connection& connection, const std::string& master, const Wait& wait) {
  const Milliseconds left = wait.deadline.left();
  INDUCTORFS_TRY_ASSIGN(const auto reply,
                        connection.call({"SENTINEL", "GET-MASTER-ADDR-BY-NAME", master}, {left, left, wait.cancelled}));
  return address_in(reply, master);
}

Result<HostPort> ask_one(const Endpoint& sentinel, const std::string& master, const Wait& wait, Kept* kept) {
  INDUCTORFS_TRY_ASSIGN(auto connection, Connection::open(sentinel, wait.deadline, wait.cancelled));
  auto found = ask_over(*connection, master, wait);
  if (found && kept != nullptr) *kept = std::move(connection);
  return found;
}

void note_named(Sentinels& sentinels, const HostPort& master) {
  sentinels.named.with([&](HostPort& named) {
    if (!named.host.empty() && named != master) sentinels.changes.fetch_add(1);
    named = master;
  });
}

/// A Sentinel of its own password has, by custom, that of the server.
Result<HostPort> ask(const Endpoint& endpoint, const HostPort& at, const Wait& wait, Kept* kept) {
  Endpoint sentinel = endpoint;
  sentinel.sentinels.reset();
  sentinel.host = at.host;
  sentinel.port = at.port;
  sentinel.database = 0;
  sentinel.user.clear();
  sentinel.password.clear();
  sentinel.secret = {};
  auto found = ask_one(sentinel, endpoint.sentinels->master, wait, kept);
  if (found || found.error().code() != ErrorCode::kNotPermitted) return found;
  INDUCTORFS_TRY_ASSIGN(sentinel.password, password_of(endpoint));
  if (sentinel.password.empty()) return found;
  sentinel.user = endpoint.user;
  return ask_one(sentinel, endpoint.sentinels->master, wait, kept);
}

}  // namespace

Result<Endpoint> find_server(const Endpoint& endpoint, const Wait& wait, std::unique_ptr<Connection>* kept) {
  if (endpoint.sentinels == nullptr) return endpoint;
  Sentinels& sentinels = *endpoint.sentinels;
  const size_t count = sentinels.addresses.size();
  const size_t first = sentinels.first.load();
  std::string told;
  for (size_t i = 0; i < count; ++i) {
    const size_t index = (first + i) % count;
    const HostPort& at = sentinels.addresses[index];
    // Each gets its share, so that a silent first one leaves time for the others and for the server itself.
    const auto share = wait.deadline.left() / static_cast<Milliseconds::rep>(count - i + 1);
    auto found = ask(endpoint, at, wait.earlier(std::max(share, kLeastPerSentinel)), kept);
    if (found) {
      note_named(sentinels, *found);
      sentinels.first.store(index);
      Endpoint server = endpoint;
      server.host = std::move(found->host);
      server.port = found->port;
      return server;
    }
    if (wait.is_cancelled()) return fail(ErrorCode::kBusy, "cancelled");
    told += (told.empty() ? "" : "; ") + at.host + ":" + std::to_string(at.port) + " " + found.error().what();
    if (wait.deadline.passed()) break;
  }
  return fail(ErrorCode::kUnavailable, "no Sentinel names the master " + sentinels.master + ": " + told);
}

Result<void> check_is_master(Connection& connection, const Endpoint& endpoint, const Wait& wait) {
  if (endpoint.sentinels == nullptr) return {};
  const Milliseconds left = wait.deadline.left();
  INDUCTORFS_TRY_ASSIGN(const auto role, connection.call({"ROLE"}, {left, left, wait.cancelled}));
  // Whoever may not ask has to believe the Sentinel.
  if (role.items.empty() || role.items.front().text == "master") return {};
  return fail(ErrorCode::kUnavailable, endpoint.host + ":" + std::to_string(endpoint.port) +
                                           ", which the Sentinels call the master, is a " + role.items.front().text);
}

MasterWatch::MasterWatch(Endpoint endpoint) : endpoint_(std::move(endpoint)) {
  thread_ = start_thread("sentinels", [this](const std::stop_token& stop) {
    Guarded<bool> ended(false);
    const std::stop_callback wake(stop, [&ended] { ended.notify_with([](bool& now) { now = true; }); });
    const auto is_over = [](bool now) { return now; };
    while (!ended.wait_until(std::chrono::steady_clock::now() + kInterval, is_over, is_over)) look();
  });
}

MasterWatch::~MasterWatch() = default;

Result<void> MasterWatch::ask_now(Deadline deadline) const {
  auto found = find_server(endpoint_, {deadline});
  return found ? Result<void>() : fail(std::move(found).error());
}

void MasterWatch::look() {
  const Wait wait{Deadline::after(kInterval)};
  const auto found =
      connection_ ? ask_over(*connection_, endpoint_.sentinels->master, wait) : fail(ErrorCode::kUnavailable, "");
  if (found) return note_named(*endpoint_.sentinels, *found);
  connection_.reset();
  (void)find_server(endpoint_, wait, &connection_);  // without an answer nothing is known; the next look tells
}

}  // namespace inductorfs::redis
