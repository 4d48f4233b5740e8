// SPDX-License-Identifier: Apache-2.0
#include "fuzz_target.h"
#include "inductorfs/redis/url.h"

namespace redis = inductorfs::redis;
namespace fuzz = inductorfs::fuzz;

/// A Redis URL. What logs and status show of it does not depend on its secrets.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto endpoint = redis::parse_url(fuzz::view(data, size));
  if (!endpoint) {
    INDUCTORFS_CHECK(!endpoint.error().what().empty());
    return 0;
  }
  // One of four ways: a server's address, its socket, Sentinels who know it, or nodes of a cluster.
  INDUCTORFS_CHECK(endpoint->sentinels == nullptr || endpoint->cluster.empty());
  const bool named = endpoint->sentinels == nullptr && endpoint->cluster.empty();
  INDUCTORFS_CHECK(named ? endpoint->host.empty() != endpoint->socket_path.empty()
                         : endpoint->host.empty() && endpoint->socket_path.empty());
  INDUCTORFS_CHECK(endpoint->host.empty() || endpoint->port != 0);
  redis::Endpoint other = *endpoint;
  if (!other.user.empty()) other.user = "somebody";
  if (!other.password.empty()) other.password = "secret";
  INDUCTORFS_CHECK(other.to_string() == endpoint->to_string());
  if (const auto again = redis::parse_url(endpoint->to_string())) {
    INDUCTORFS_CHECK(again->host == endpoint->host && again->port == endpoint->port);
    INDUCTORFS_CHECK(again->socket_path == endpoint->socket_path && again->database == endpoint->database);
    INDUCTORFS_CHECK(again->tls == endpoint->tls && again->cluster == endpoint->cluster);
  }
  return 0;
}
