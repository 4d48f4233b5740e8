// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "block_cache.h"
#include "breaker.h"
#include "head.h"
#include "inductorfs/remote/remote.h"
#include "inductorfs/remote/write_condition.h"
#include "lifetime.h"
#include "redis_client.h"
#include "rereads.h"

/// The operations of the Redis remote, one source file each. All of them block up to the deadline.
/// Safe for concurrent use.
namespace inductorfs::remote {

/// Bytes in flight on one connection. More makes the server's other clients wait.
inline constexpr size_t kWindowBytes = size_t{4} << 20;
/// Records that a reader takes in one read: kRecordsPerRead * kRecordBytesLimit must fit into one reply (64 MiB).
inline constexpr size_t kRecordsPerRead = 32;

void fetch_blobs(RedisClient& session, BlockCache& cache, std::span<const codec::Digest> digests, BlobSink& sink,
                 Budget& budget);
/// Remote::gather(). Small blobs are read, and written again as members of solid blocks.
[[nodiscard]] Result<GatherReport> gather_blobs(RedisClient& session, std::span<const codec::Digest> digests,
                                                Deadline deadline);

/// Says whether this reply means that the server reads and does not write, whoever asks: it is full, cannot save, is a
/// replica, or lacks its replicas.
[[nodiscard]] bool refuses_writes(const redis::Reply& reply);

/// Publishes a group. `writes` is open while the server reads but refuses to write (OOM, MISCONF, READONLY,
/// NOREPLICAS).
[[nodiscard]] Result<PublishOutcome> publish_group(RedisClient& session, Breaker& writes, WriteCondition& condition,
                                                   const PublishGroup& group, BlobSource& source, Deadline deadline);
[[nodiscard]] Result<void> report_lost_entry(RedisClient& session, const ScopeId& scope, const std::string& path,
                                             const codec::Digest& digest, Deadline deadline);

[[nodiscard]] Result<SweepReport> sweep_scope(RedisClient& session, const ScopeId& scope, bool wanted,
                                              Deadline deadline);

/// Skips records that only another release reads (counter "remote.skipped_records"); `rereads` says when the scope is
/// read anew for them.
[[nodiscard]] Result<Delta> read_scope(RedisClient& session, Rereads& rereads, const ScopeId& scope,
                                       const Position& from, Deadline deadline);
[[nodiscard]] Result<std::vector<ScopeId>> wait_for_scopes(RedisClient& session, HeadWatch& heads,
                                                           const std::vector<std::pair<ScopeId, Position>>& scopes,
                                                           Milliseconds most, const std::function<bool()>& cancelled);
/// The part of wait_for_scopes() that waits, on a Redis Cluster. Requires: there are scopes.
[[nodiscard]] Result<std::vector<ScopeId>> wait_on_cluster(RedisClient& session, HeadWatch& heads,
                                                           const std::vector<std::pair<ScopeId, Position>>& scopes,
                                                           Deadline deadline, const std::function<bool()>& cancelled);

/// Announces a scope whose information check_information() has accepted.
[[nodiscard]] Result<void> announce_to(RedisClient& session, const ScopeInformation& scope, Deadline deadline);
[[nodiscard]] Result<std::vector<ScopeId>> holders_of(RedisClient& session, const std::string& path,
                                                      std::span<const ScopeId> scopes, Deadline deadline);
[[nodiscard]] Result<std::vector<ScopeInformation>> list_announced(RedisClient& session, size_t limit,
                                                                   Deadline deadline);

/// Puts the mount into the registry, and begins the lifetime of the orders anew, if `registers`, or if the registry
/// does not name the mount.
[[nodiscard]] Result<BeatAnswer> beat_at(RedisClient& session, WriteCondition& condition, const std::string& id,
                                         std::string_view record, bool registers, Deadline deadline);
void leave_nodes(RedisClient& session, const std::string& id, Deadline deadline);
/// Records of mounts that anybody has put there under an id that is none are left out ("remote.bad_nodes").
[[nodiscard]] Result<std::vector<NodeRecord>> list_records(RedisClient& session, size_t limit, Deadline deadline);
[[nodiscard]] Result<OrdersNow> read_orders_of(RedisClient& session, Deadline deadline);
[[nodiscard]] Result<bool> replace_orders_of(RedisClient& session, const std::string& before, const std::string& after,
                                             Deadline deadline);

[[nodiscard]] Result<PurgeReport> purge_scope(RedisClient& session, const ScopeId& scope,
                                              const std::function<bool(const codec::Entry&)>& selects, bool dry_run,
                                              Deadline deadline);
[[nodiscard]] Result<void> unlink_blob(RedisClient& session, const codec::Digest& digest, Deadline deadline);

/// Requires: check_leases() accepts them.
[[nodiscard]] Result<std::vector<Lease>> hold_leases_at(RedisClient& session, std::span<const LeaseName> names,
                                                        const std::string& holder, Milliseconds lifetime,
                                                        Deadline deadline);

/// Keeps the keys of followed scopes alive. Keys that this user may not renew are left to others.
[[nodiscard]] Result<void> keep_scopes(RedisClient& session, std::span<const ScopeKeeper::Due> due, Deadline deadline);
/// Renews blobs. Blobs that are gone, or that this user may not renew, are no error.
[[nodiscard]] Result<void> renew_blobs(RedisClient& session, std::span<const codec::Digest> digests, Deadline deadline);

[[nodiscard]] Result<ServerFacts> probe_server(RedisClient& session, Deadline deadline);
/// The fields of INFO.
using InfoFields = std::map<std::string, std::string, std::less<>>;
inline constexpr size_t kInfoFieldsLimit = 4096;
/// Adds the fields of one answer, up to the limit.
void add_info(std::string_view text, InfoFields& fields);
enum class ServerMode { kAlone, kShard };
/// Reads the facts from the text of INFO; kInvalid when the text is not one. kNotSupported: a server that is too old,
/// or that is part of a cluster and was named alone.
[[nodiscard]] Result<ServerFacts> facts_from_info(const std::string& info, ServerMode mode = ServerMode::kAlone);

}  // namespace inductorfs::remote
