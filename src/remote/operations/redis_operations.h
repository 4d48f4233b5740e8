// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inductorfs/remote/remote.h"
#include "inductorfs/remote/write_condition.h"
#include "remote/client/breaker.h"
#include "remote/client/redis_client.h"
#include "remote/formats/head.h"
#include "remote/formats/scope_text.h"
#include "remote/operations/block_cache.h"
#include "remote/operations/lifetime.h"
#include "remote/operations/rereads.h"

namespace inductorfs::remote {

/// Bytes in flight on one connection. More makes the server's other clients wait.
inline constexpr size_t kWindowBytes = size_t{4} << 20;
/// Records that a reader takes in one read: kRecordsPerRead * kRecordBytesLimit must fit into one reply (64 MiB).
inline constexpr size_t kRecordsPerRead = 32;

/// Says whether this reply means that the server reads and does not write, whoever asks: it is full, cannot save, is a
/// replica, or lacks its replicas.
[[nodiscard]] bool refuses_writes(const redis::Reply& reply);

/// A cluster behind one Redis server, or behind the shards of a Redis Cluster. Each operation stands in the source of
/// its kind. Safe for concurrent use.
class RedisRemote final : public Blobs, public Index, public Operators, public Leases, public Statements {
 public:
  /// What all handles to one server share.
  struct Shared {
    explicit Shared(const RemoteOptions& options);
    Breaker writes;  ///< open while the server reads but refuses to write (OOM, MISCONF, READONLY, NOREPLICAS)
    Announcements announcements;
    HeadWatch heads;
    ScopeKeeper keeper;
    Rereads rereads;  ///< of scopes with records that only another release reads (counter "remote.skipped_records")
    BlockCache blocks;
    Guarded<SteadyTime> registered;  ///< when this mount was put into the registry of mounts
  };

  RedisRemote(RedisClient session, std::shared_ptr<Shared> shared, std::shared_ptr<WriteCondition> writes)
      : session_(std::move(session)), shared_(std::move(shared)), writes_(std::move(writes)) {}

  void fetch(std::span<const codec::Digest> digests, BlobSink& sink, Deadline deadline) override {
    Budget budget(deadline, session_.options().without_progress, std::chrono::steady_clock::now());
    fetch_within(digests, sink, budget);
  }
  void fetch_within(std::span<const codec::Digest> digests, BlobSink& sink, Budget& budget) override;
  bool resting() const override { return session_.resting(); }
  Result<PublishOutcome> publish(const PublishGroup& group, BlobSource& source, Deadline deadline) override;
  Result<GatherReport> gather(std::span<const codec::Digest> digests, Deadline deadline) override;
  Result<void> renew(std::span<const codec::Digest> digests, Deadline deadline) override;
  Result<Delta> read_changes(const ScopeId& scope, const Position& from, Deadline deadline) override;
  Result<std::vector<ScopeId>> wait_for_changes(const std::vector<std::pair<ScopeId, Position>>& scopes,
                                                Milliseconds most, const std::function<bool()>& cancelled) override;
  Result<void> report_lost(const ScopeId& scope, const std::string& path, const codec::Digest& digest,
                           Deadline deadline) override;
  Result<SweepReport> sweep(const ScopeId& scope, bool wanted, Deadline deadline) override;
  Result<void> announce_scope(const ScopeInformation& scope, Deadline deadline) override;
  Result<std::vector<ScopeId>> scopes_with(const std::string& path, std::span<const ScopeId> scopes,
                                           Deadline deadline) override;
  Result<std::vector<ScopeInformation>> list_scopes(size_t limit, Deadline deadline) override;
  /// Puts the mount into the registry, and begins the lifetime of the orders anew, when that is due, or if the registry
  /// does not name the mount.
  Result<BeatAnswer> beat(const std::string& id, std::string_view record, Deadline deadline) override;
  void leave(const std::string& id, Deadline deadline) override;
  /// Records of mounts that anybody has put there under an id that is none are left out ("remote.bad_nodes").
  Result<std::vector<NodeRecord>> list_nodes(size_t limit, Deadline deadline) override;
  Result<void> remember_node(const std::string& name, Deadline deadline) override;
  void forget_node(const std::string& name, Deadline deadline) override;
  Result<std::vector<MissingNode>> list_missing_nodes(Milliseconds least, Deadline deadline) override;
  Result<OrdersNow> read_orders(Deadline deadline) override;
  Result<bool> replace_orders(const std::string& before, const std::string& after, Deadline deadline) override;
  Result<PurgeReport> purge(const ScopeId& scope, const std::function<bool(const codec::Entry&)>& selects, bool dry_run,
                            Deadline deadline) override;
  Result<void> remove_blob(const codec::Digest& digest, Deadline deadline) override;
  Result<std::vector<Lease>> hold_leases(std::span<const LeaseName> names, const std::string& holder,
                                         Milliseconds lifetime, Deadline deadline) override;
  Result<void> put_statement(const std::string& scope, std::string_view bytes, std::span<const std::string> keys,
                             Milliseconds lifetime, Deadline deadline) override;
  Result<std::vector<std::string>> find_statements(const std::string& scope, std::span<const std::string> keys,
                                                   Deadline deadline) override;
  Result<std::vector<std::string>> read_statements(const std::string& scope, std::span<const std::string> ids,
                                                   Deadline deadline) override;
  Result<ServerFacts> probe(Deadline deadline) override;
  Health health() const override { return session_.health(); }
  uint64_t server_changes() const override { return session_.server_changes(); }
  Result<void> confirm_server(Deadline deadline) override { return session_.confirm_server(deadline); }
  std::shared_ptr<Blobs> blobs_until(std::function<bool()> cancelled) override { return until(std::move(cancelled)); }
  std::shared_ptr<Index> index_until(std::function<bool()> cancelled) override { return until(std::move(cancelled)); }

 private:
  [[nodiscard]] std::shared_ptr<RedisRemote> until(std::function<bool()> cancelled) const {
    return std::make_shared<RedisRemote>(session_.cancellable(std::move(cancelled)), shared_, writes_);
  }
  static tl::unexpected<Error> read_only();
  static tl::unexpected<Error> no_orders();
  /// Keeps the keys of followed scopes alive. Keys that this user may not renew are left to others.
  void keep(const std::vector<ScopeId>& scopes, Deadline deadline);
  /// Requires: check_information() accepts the scope's.
  [[nodiscard]] Result<void> announce(const ScopeInformation& scope, Deadline deadline);
  void announce_again(const ScopeId& scope, Deadline deadline);

  RedisClient session_;
  std::shared_ptr<Shared> shared_;
  std::shared_ptr<WriteCondition> writes_;
};

/// The part of wait_for_changes() that waits, on a Redis Cluster. Requires: there are scopes.
[[nodiscard]] Result<std::vector<ScopeId>> wait_on_cluster(RedisClient& session, HeadWatch& heads,
                                                           const std::vector<std::pair<ScopeId, Position>>& scopes,
                                                           Deadline deadline, const std::function<bool()>& cancelled);

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
