// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "inductorfs/redis/connection.h"
#include "transport.h"

namespace inductorfs::redis {

/// Where to connect: the endpoint itself, or what the first Sentinel that answers calls the master. kUnavailable, with
/// what each of them said, when none knows one.
[[nodiscard]] Result<Endpoint> find_server(const Endpoint& endpoint, const Wait& wait);

/// A Sentinel may name a server that is none any more, or not yet: kUnavailable unless it says of itself that it is the
/// master. Asks nothing where there are no Sentinels.
[[nodiscard]] Result<void> check_is_master(Connection& connection, const Endpoint& endpoint, const Wait& wait);

}  // namespace inductorfs::redis
