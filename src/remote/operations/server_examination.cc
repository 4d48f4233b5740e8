// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/remote/server_examination.h"

#include <algorithm>
#include <array>

#include "inductorfs/base/number.h"
#include "inductorfs/redis/connection.h"
#include "remote/client/shards.h"
#include "remote/operations/redis_operations.h"

namespace inductorfs::remote {
namespace {

using redis::Reply;

constexpr size_t kPings = 5;

bool is_local(const redis::Endpoint& endpoint) {
  if (endpoint.sentinels) return false;
  return !endpoint.socket_path.empty() || endpoint.host == "localhost" || endpoint.host == "::1" ||
         endpoint.host.starts_with("127.");
}

Result<void> measure(redis::Connection& connection, redis::Patience patience, ServerExamination& found) {
  std::array<std::chrono::microseconds, kPings> trips{};
  for (auto& trip : trips) {
    const SteadyTime begin = std::chrono::steady_clock::now();
    INDUCTORFS_TRY(connection.call({"PING"}, patience));
    trip = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin);
  }
  std::ranges::sort(trips);
  found.round_trip = trips[kPings / 2];
  const auto before = std::chrono::system_clock::now();
  INDUCTORFS_TRY_ASSIGN(const Reply time, connection.call({"TIME"}, patience));
  if (time.kind != Reply::Kind::kArray || time.items.empty()) return {};  // the user may not ask
  const auto seconds = number_in<int64_t>(time.items.front().text);
  const auto here = std::chrono::duration_cast<std::chrono::seconds>(before.time_since_epoch());
  if (seconds) found.clock_ahead = std::chrono::seconds(*seconds) - here;
  return {};
}

Result<ServerExamination> examine_one(const redis::Endpoint& endpoint, Deadline deadline) {
  ServerExamination found;
  found.address = endpoint.to_string();
  found.local = is_local(endpoint);
  found.tls = endpoint.tls;
  found.has_password = endpoint.secret || !endpoint.password.empty();
  INDUCTORFS_TRY_ASSIGN(const auto connection, redis::Connection::open(endpoint, deadline));
  const auto patience = [&] { return redis::Patience{deadline.left(), deadline.left()}; };
  for (const char* section : {"server", "clients", "memory", "persistence", "replication", "cluster"}) {
    INDUCTORFS_TRY_ASSIGN(const Reply reply, connection->call({"INFO", section}, patience()));
    if (reply.is_error()) {
      Error error = redis::to_error(reply);
      // An answer to the greeting that came late: the server wants a password, for instance.
      if (!reply.text.starts_with("NOPERM")) return fail(std::move(error));
      break;
    }
    add_info(reply.text, found.info);
  }
  const std::string user = endpoint.user.empty() ? "default" : endpoint.user;
  INDUCTORFS_TRY_ASSIGN(const Reply rights, connection->call({"ACL", "GETUSER", user}, patience()));
  found.administers = !rights.is_error();
  INDUCTORFS_TRY(measure(*connection, patience(), found));
  return found;
}

// The masters, in the order of their addresses. One that does not answer is found, too.
Result<std::vector<ServerExamination>> examine_shards(const redis::Endpoint& endpoint, const RemoteOptions& options,
                                                      Deadline deadline) {
  Counters counters;
  Shards shards(endpoint, options, counters);
  INDUCTORFS_TRY(shards.prepare({Use::kControl, deadline}));
  std::vector<ServerExamination> all;
  const auto masters = shards.masters();
  for (size_t i = 0; i < masters.size(); ++i) {
    const Milliseconds share = deadline.left() / static_cast<Milliseconds::rep>(masters.size() - i);
    auto answer = examine_one(masters[i]->endpoint(), deadline.earlier(share));
    ServerExamination one = answer ? std::move(*answer) : ServerExamination{};
    one.address = masters[i]->endpoint().to_string();
    if (!answer) one.unreachable = answer.error().what();
    one.of_cluster = true;
    all.push_back(std::move(one));
  }
  std::ranges::sort(all, {}, &ServerExamination::address);
  return all;
}

}  // namespace

Result<std::vector<ServerExamination>> examine_servers(const RemoteOptions& options, Deadline deadline) {
  INDUCTORFS_TRY_ASSIGN(const auto endpoint, endpoint_of(options));
  if (!endpoint.cluster.empty()) return examine_shards(endpoint, options, deadline);
  INDUCTORFS_TRY_ASSIGN(auto one, examine_one(endpoint, deadline));
  return std::vector<ServerExamination>{std::move(one)};
}

}  // namespace inductorfs::remote
