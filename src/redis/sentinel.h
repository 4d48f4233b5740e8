// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "inductorfs/redis/connection.h"
#include "transport.h"

namespace inductorfs::redis {

/// Returns the server to connect to: the endpoint itself, or the one that the first answering Sentinel names as the
/// master. kUnavailable, with what each Sentinel said, when none knows a master. `kept` receives the connection to the
/// Sentinel that answered.
[[nodiscard]] Result<Endpoint> find_server(const Endpoint& endpoint, const Wait& wait,
                                           std::unique_ptr<Connection>* kept = nullptr);

/// Checks that the server says of itself that it is the master, because a Sentinel may name a server that is no longer
/// one, or not yet: kUnavailable otherwise. Asks nothing when there are no Sentinels.
[[nodiscard]] Result<void> check_is_master(Connection& connection, const Endpoint& endpoint, const Wait& wait);

}  // namespace inductorfs::redis
