// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/encoding.h"
#include "inductorfs/remote/index.h"
#include "remote/client/conversation.h"

namespace inductorfs::remote {

/// The keys of one scope. The braces make them one slot of a Redis Cluster, so that a script may touch them together.
///     :meta HASH    gen (decimal), nonce, fmt = 1
///     :idx  HASH    path -> codec::encode_entry
///     :cnt  HASH    contest key -> number of live groups under it
///     :own  HASH    path -> group, "/" group -> contest key; only paths of groups that were published in a contest.
///                   group := the nonce of its publish. A path never begins with "/", so the two cannot meet.
///     :log  STREAM  id = <gen>-0, fields p = nonce before, n = nonce, r = codec::encode_record
///     :about STRING encode_information (scope_text.h), with a lifetime
///     :sweep STRING the token of the mount that sweeps this scope; "rested" for some time after a sweep
///     :lease:<name> STRING who has this lease; lives for seconds (leases.h)
///     :st:<id in hex> STRING what a publisher has signed (statements.h); lives until it expires
///     :sig  HASH    key of an entry with its digest -> id of the statement that covers it
///     :sending:<name> STRING the origin of the host that is sending this contest or path; lives for seconds
/// Immutable value.
struct ScopeKeys {
  ScopeKeys(const std::string& prefix, const ScopeId& scope)
      : base(prefix + ":{" + scope + "}"),
        meta(base + ":meta"),
        index(base + ":idx"),
        counts(base + ":cnt"),
        owners(base + ":own"),
        log(base + ":log"),
        covered(base + ":sig"),
        sweeper(base + ":sweep"),
        about(base + ":about") {}
  [[nodiscard]] std::string sending(const std::string& name) const { return base + ":sending:" + name; }
  [[nodiscard]] std::string lease(const std::string& name) const { return base + ":lease:" + name; }
  /// STRING: the fence of one purge of this scope; lives for a minute.
  [[nodiscard]] std::string purging(const std::string& token) const { return base + ":purge:" + token; }
  [[nodiscard]] std::string statement(std::string_view id) const { return base + ":st:" + to_hex(id); }
  std::string base, meta, index, counts, owners, log, covered, sweeper, about;
};

/// Adds, on a Redis Cluster, what tells followers that this scope has changed: a message without text on the sharded
/// channel that has the name of `meta` (channel_listeners.h). It comes after the change, in the same pipeline.
inline void tell_followers(const Conversation& channel, const ScopeKeys& keys, std::vector<redis::Command>& commands) {
  if (channel.spans_servers()) commands.push_back({"SPUBLISH", keys.meta, ""});
}

/// ZSET: the ids of announced scopes by the server's time of their last announcement, in milliseconds.
[[nodiscard]] inline std::string scope_registry_key(const std::string& prefix) { return prefix + ":scopes"; }

/// STRING: a host gathers the blobs of which this digest is the least (Blobs::gather); lives for minutes.
[[nodiscard]] inline std::string gathering_key(const std::string& prefix, const codec::Digest& least) {
  return prefix + ":gathering:" + least.to_hex();
}

/// The keys of the mounts' records and of an operator's orders; the braces make them one slot of a Redis Cluster.
///     :registry  ZSET: the ids of mounts by the server's time of their last registration, in milliseconds
///     :node:<id> STRING: what a mount says of itself, as it has written it; lives for kNodeLifetime
///     :seen      ZSET: the names of mounts by the server's time when they had themselves remembered, in milliseconds
///     :orders    STRING: what an operator has ordered
/// Immutable value.
struct NodeKeys {
  explicit NodeKeys(const std::string& prefix)
      : base(prefix + ":{nodes}"), registry(base + ":registry"), seen(base + ":seen"), orders(base + ":orders") {}
  [[nodiscard]] std::string node(const std::string& id) const { return base + ":node:" + id; }
  std::string base, registry, seen, orders;
};

}  // namespace inductorfs::remote
