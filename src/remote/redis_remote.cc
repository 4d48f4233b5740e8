// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "endpoint.h"
#include "redis_operations.h"
#include "scope_text.h"

namespace inductorfs::remote {
namespace {

constexpr size_t kPrefixLimit = 64;

/// What was announced is said again when a quarter of its lifetime has passed: a server that was away for a while, or
/// one announcement that failed, does not make a scope in use look unused.
constexpr int kAnnouncementsPerLifetime = 4;
/// A registration outlives three of it. A server that has forgotten one is told with the next record (beat_at()).
constexpr Milliseconds kRegisterInterval{300'000};
constexpr Milliseconds kKeepPatience{2'000};

/// A cluster behind one Redis server. Safe for concurrent use.
class RedisRemote final : public Remote {
 public:
  /// What all handles to one server share.
  struct Shared {
    explicit Shared(const RemoteOptions& options)
        : writes({Milliseconds(1000), Milliseconds(60000)}),
          announcements(std::chrono::duration_cast<Milliseconds>(options.blob_lifetime) / kAnnouncementsPerLifetime),
          heads(options.head_interval),
          keeper(std::chrono::duration_cast<Milliseconds>(options.blob_lifetime) / kRenewalsPerLifetime) {}
    Breaker writes;  // publishing only: a server without memory for writes still answers reads
    Announcements announcements;
    HeadWatch heads;
    ScopeKeeper keeper;
    Rereads rereads;
    BlockCache blocks;
    Guarded<SteadyTime> registered;  ///< when this mount was put into the registry of mounts
  };

  RedisRemote(RedisClient session, std::shared_ptr<Shared> shared, std::shared_ptr<WriteCondition> writes)
      : session_(std::move(session)), shared_(std::move(shared)), writes_(std::move(writes)) {}

  void fetch(std::span<const codec::Digest> digests, BlobSink& sink, Deadline deadline) override {
    Budget budget(deadline, session_.options().without_progress, std::chrono::steady_clock::now());
    fetch_blobs(session_, shared_->blocks, digests, sink, budget);
  }
  void fetch_within(std::span<const codec::Digest> digests, BlobSink& sink, Budget& budget) override {
    fetch_blobs(session_, shared_->blocks, digests, sink, budget);
  }
  bool resting() const override { return session_.resting(); }
  Result<PublishOutcome> publish(const PublishGroup& group, BlobSource& source, Deadline deadline) override {
    if (session_.options().read_only) return read_only();
    return publish_group(session_, shared_->writes, *writes_, group, source, deadline);
  }
  Result<GatherReport> gather(std::span<const codec::Digest> digests, Deadline deadline) override {
    if (session_.options().read_only) return read_only();
    return gather_blobs(session_, digests, deadline);
  }
  Result<void> renew(std::span<const codec::Digest> digests, Deadline deadline) override {
    if (session_.options().read_only) return read_only();
    return renew_blobs(session_, digests, deadline);
  }
  Result<Delta> read_changes(const ScopeId& scope, const Position& from, Deadline deadline) override {
    auto delta = read_scope(session_, shared_->rereads, scope, from, deadline);
    if (!delta) return delta;
    if (delta->at_head) shared_->heads.confirm(scope, delta->position);
    if (delta->position != Position{}) keep({scope}, deadline);  // else there is nothing to keep
    announce_again(scope, deadline);
    return delta;
  }
  Result<std::vector<ScopeId>> wait_for_changes(const std::vector<std::pair<ScopeId, Position>>& scopes,
                                                Milliseconds most, const std::function<bool()>& cancelled) override {
    // A scope in which nothing happens is not read, and in use all the same.
    std::vector<ScopeId> followed;
    for (const auto& [scope, position] : scopes) followed.push_back(scope);
    keep(followed, Deadline::after(kKeepPatience));
    shared_->blocks.drop_unused(std::chrono::steady_clock::now());
    for (const ScopeId& scope : followed) announce_again(scope, Deadline::after(most));
    return wait_for_scopes(session_, shared_->heads, scopes, most, cancelled);
  }
  Result<void> report_lost(const ScopeId& scope, const std::string& path, const codec::Digest& digest,
                           Deadline deadline) override {
    if (session_.options().read_only) return read_only();
    return report_lost_entry(session_, scope, path, digest, deadline);
  }
  Result<SweepReport> sweep(const ScopeId& scope, bool wanted, Deadline deadline) override {
    if (session_.options().read_only) return SweepReport{};
    return sweep_scope(session_, scope, wanted, deadline);
  }
  Result<void> announce_scope(const ScopeInformation& scope, Deadline deadline) override {
    INDUCTORFS_TRY(check_information(scope));
    if (session_.options().read_only) return {};
    if (!shared_->announcements.claim(scope, std::chrono::steady_clock::now())) return {};
    auto outcome = announce_to(session_, scope, deadline);
    if (outcome) return {};
    shared_->announcements.failed(scope.id);
    session_.counters().get("remote.announce_failed").add();
    return outcome;
  }
  Result<std::vector<ScopeId>> scopes_with(const std::string& path, std::span<const ScopeId> scopes,
                                           Deadline deadline) override {
    return holders_of(session_, path, scopes, deadline);
  }
  Result<std::vector<ScopeInformation>> list_scopes(size_t limit, Deadline deadline) override {
    return list_announced(session_, limit, deadline);
  }
  Result<BeatAnswer> beat(const std::string& id, std::string_view record, Deadline deadline) override {
    const auto now = std::chrono::steady_clock::now();
    const bool is_due = shared_->registered.with(
        [&](const SteadyTime& last) { return last == SteadyTime{} || now - last >= kRegisterInterval; });
    const bool registers = is_due && !record.empty();
    auto answer = beat_at(session_, *writes_, id, record, registers, deadline);
    if (answer && registers) shared_->registered.with([&](SteadyTime& last) { last = now; });
    return answer;
  }
  void leave(const std::string& id, Deadline deadline) override { leave_nodes(session_, id, deadline); }
  Result<std::vector<NodeRecord>> list_nodes(size_t limit, Deadline deadline) override {
    return list_records(session_, limit, deadline);
  }
  Result<OrdersNow> read_orders(Deadline deadline) override { return read_orders_of(session_, deadline); }
  Result<bool> replace_orders(const std::string& before, const std::string& after, Deadline deadline) override {
    if (session_.options().read_only) return no_orders();
    return replace_orders_of(session_, before, after, deadline);
  }
  Result<PurgeReport> purge(const ScopeId& scope, const std::function<bool(const codec::Entry&)>& selects, bool dry_run,
                            Deadline deadline) override {
    if (!dry_run && session_.options().read_only) return no_orders();
    return purge_scope(session_, scope, selects, dry_run, deadline);
  }
  Result<void> remove_blob(const codec::Digest& digest, Deadline deadline) override {
    if (session_.options().read_only) return no_orders();
    return unlink_blob(session_, digest, deadline);
  }
  Result<std::vector<Lease>> hold_leases(std::span<const LeaseName> names, const std::string& holder,
                                         Milliseconds lifetime, Deadline deadline) override {
    if (session_.options().read_only) return read_only();
    INDUCTORFS_TRY(check_leases(names, holder));
    return hold_leases_at(session_, names, holder, lifetime, deadline);
  }
  Result<ServerFacts> probe(Deadline deadline) override { return probe_server(session_, deadline); }
  Health health() const override { return session_.health(); }
  uint64_t server_changes() const override { return session_.server_changes(); }
  Result<void> confirm_server(Deadline deadline) override { return session_.confirm_server(deadline); }
  std::unique_ptr<Remote> cancellable(std::function<bool()> cancelled) override {
    return std::make_unique<RedisRemote>(session_.cancellable(std::move(cancelled)), shared_, writes_);
  }

 private:
  static tl::unexpected<Error> read_only() { return fail(ErrorCode::kNotPermitted, "the remote is opened read-only"); }
  /// No time mends it: an operator has asked the wrong mount.
  static tl::unexpected<Error> no_orders() {
    return fail(ErrorCode::kInvalid,
                "the mount or configuration that is named is --read-only, and changes nothing in the cluster: name the "
                "cluster with --remote URL instead");
  }
  // What fails is done by another mount, or when it is due again.
  void keep(const std::vector<ScopeId>& scopes, Deadline deadline) {
    if (session_.options().read_only) return;
    const auto due = shared_->keeper.due(scopes, std::chrono::steady_clock::now());
    if (due.empty()) return;
    if (!keep_scopes(session_, due, deadline)) session_.counters().get("remote.keep_failed").add();
  }
  void announce_again(const ScopeId& scope, Deadline deadline) {
    const auto due = shared_->announcements.due(scope, std::chrono::steady_clock::now());
    // What is lost with it is a line in a listing, until the next time.
    if (due && !announce_to(session_, *due, deadline)) session_.counters().get("remote.announce_failed").add();
  }

  RedisClient session_;
  std::shared_ptr<Shared> shared_;
  std::shared_ptr<WriteCondition> writes_;
};

bool is_good_prefix(const std::string& prefix) {
  return !prefix.empty() && prefix.size() <= kPrefixLimit &&
         prefix.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") ==
             std::string::npos;
}

}  // namespace

Result<std::unique_ptr<Remote>> open_redis(const RemoteOptions& options, Counters& counters) {
  return open_redis(options, counters, std::make_shared<WriteCondition>());
}

Result<std::unique_ptr<Remote>> open_redis(const RemoteOptions& options, Counters& counters,
                                           std::shared_ptr<WriteCondition> writes) {
  INDUCTORFS_TRY_ASSIGN(auto endpoint, endpoint_of(options));
  if (!is_good_prefix(options.prefix)) {
    return fail(ErrorCode::kInvalid, "the key prefix is 1 to 64 letters, digits, and - _ .");
  }
  if (options.blob_lifetime.count() <= 0) return fail(ErrorCode::kInvalid, "the lifetime of blobs must be positive");
  return std::make_unique<RedisRemote>(RedisClient(options, std::move(endpoint), counters),
                                       std::make_shared<RedisRemote::Shared>(options), std::move(writes));
}

}  // namespace inductorfs::remote
