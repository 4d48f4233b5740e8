// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "inductorfs/base/guarded.h"
#include "inductorfs/remote/local_remote.h"
#include "inductorfs/remote/remote.h"
#include "remote/formats/group.h"
#include "remote/formats/scope_text.h"
#include "remote/others/memory_statements.h"

namespace inductorfs::remote {
namespace {

constexpr size_t kLogLength = 10'000;
constexpr size_t kPieceSize = size_t{1} << 20;
/// A waiter that nobody wakes asks this often whether it is cancelled.
constexpr Milliseconds kCancelInterval{100};

struct StoredScope {
  struct Logged {
    uint64_t generation;
    std::string before;
    std::string nonce;
    std::string record;
  };
  Position head;
  std::map<std::string, std::string> index;     // path, encoded entry
  std::map<std::string, uint64_t> counts;       // contest key, live groups
  std::map<std::string, std::string> owners;    // path, group
  std::map<std::string, std::string> contests;  // group, contest key
  std::deque<Logged> log;

  std::string advance(std::string record) {
    std::string nonce = random_nonce();
    log.push_back({head.generation + 1, head.nonce, nonce, std::move(record)});
    head = {head.generation + 1, nonce};
    if (log.size() > kLogLength) log.pop_front();
    return nonce;
  }
};

struct ClusterState {
  std::map<ScopeId, StoredScope> scopes;
  std::unordered_map<codec::Digest, std::string> frames;
  std::deque<ScopeInformation> announced;                           // newest first
  std::map<std::string, std::pair<std::string, SteadyTime>> nodes;  // id, record and its heartbeat
  std::map<std::string, SteadyTime> seen;                           // names, when they were remembered
  std::string orders;
  struct Held {
    std::string holder;
    SteadyTime until{};
  };
  std::map<std::pair<std::string, std::string>, Held> leases;
  uint64_t wakes = 0;  // how often waiters were woken to ask whether they are cancelled
};

bool holds_all(const StoredScope& scope, const EncodedGroup& group) {
  return std::all_of(group.values.begin(), group.values.end(), [&](const auto& value) {
    const auto held = scope.index.find(value.first);
    return held != scope.index.end() && held->second == value.second;
  });
}

bool holds_digests(const StoredScope& scope, const EncodedGroup& group) {
  return std::all_of(group.values.begin(), group.values.end(), [&](const auto& value) {
    const auto held = scope.index.find(value.first);
    return held != scope.index.end() && stored_digest(held->second) == stored_digest(value.second);
  });
}

bool still_replaces(const StoredScope& scope, const PublishGroup& group) {
  const auto held = scope.index.find(group.entries.front().path);
  const std::optional<codec::Digest>& expected = group.replaces->digest;
  if (held == scope.index.end()) return !expected;
  return expected && stored_digest(held->second) == expected->raw();
}

// The same steps as the publish script (scripts.cc), in the same order. `repaired`: blobs of entries that were there
// have been sent again.
PublishOutcome apply(StoredScope& scope, const PublishGroup& group, const EncodedGroup& encoded, bool repaired) {
  if (holds_digests(scope, encoded)) {
    if (!repaired) return holds_all(scope, encoded) ? PublishOutcome::kPublished : PublishOutcome::kHeld;
    scope.advance(encoded.record);
    for (const auto& [path, value] : encoded.values) scope.index[path] = value;
    return PublishOutcome::kPublished;
  }
  if (group.contest && scope.counts[group.contest->key] > group.contest->most) return PublishOutcome::kSuperseded;
  if (group.replaces && !still_replaces(scope, group)) return PublishOutcome::kConflict;
  const std::string name = scope.advance(encoded.record);
  for (const auto& [path, value] : encoded.values) {
    scope.index[path] = value;
    scope.owners.erase(path);
    if (group.contest) scope.owners[path] = name;
  }
  if (group.contest) {
    scope.contests[name] = group.contest->key;
    ++scope.counts[group.contest->key];
  }
  return PublishOutcome::kPublished;
}

void give_contest_back(StoredScope& scope, const std::string& path) {
  const auto owner = scope.owners.find(path);
  if (owner == scope.owners.end()) return;
  if (const auto contest = scope.contests.find(owner->second); contest != scope.contests.end()) {
    --scope.counts[contest->second];
    scope.contests.erase(contest);
  }
  scope.owners.erase(owner);
}

Delta changes_since(const StoredScope& scope, const Position& from) {
  if (scope.head == from) return Delta{false, {}, {}, from};
  DeltaFold fold;
  Position at = from;
  for (const StoredScope::Logged& logged : scope.log) {
    if (logged.generation != at.generation + 1 || logged.before != at.nonce) continue;
    if (auto record = codec::decode_record(logged.record)) fold.apply(std::move(*record));
    at = {logged.generation, logged.nonce};
  }
  if (at == scope.head) return std::move(fold).finish(false, at);
  DeltaFold whole;
  for (const auto& [path, value] : scope.index) {
    if (auto entry = codec::decode_entry(path, value)) whole.set(std::move(*entry));
  }
  return std::move(whole).finish(true, scope.head);
}

}  // namespace

/// What all handles share. Safe for concurrent use.
class MemoryCluster {
 public:
  explicit MemoryCluster(bool keeps_bytes) : keeps_bytes_(keeps_bytes) {}
  Guarded<ClusterState>& state() { return state_; }
  /// Without them every blob is known and none is here: the index loses no blobs.
  [[nodiscard]] bool keeps_bytes() const { return keeps_bytes_; }
  [[nodiscard]] const std::shared_ptr<Statements>& statements() const { return statements_; }

 private:
  const std::shared_ptr<Statements> statements_ = make_memory_statements();
  const bool keeps_bytes_;
  Guarded<ClusterState> state_;
};

namespace {

/// One mount's handle to a cluster in memory. Safe for concurrent use.
class MemoryRemote final : public Blobs, public Index, public Operators, public Leases {
 public:
  explicit MemoryRemote(std::shared_ptr<MemoryCluster> cluster) : cluster_(std::move(cluster)) {}

  void fetch(std::span<const codec::Digest> digests, BlobSink& sink, Deadline /*deadline*/) override {
    std::map<codec::Digest, bool> seen;
    for (const codec::Digest& digest : digests) {
      if (std::exchange(seen[digest], true)) continue;
      const auto frame = cluster_->state().with([&](const ClusterState& state) -> std::optional<std::string> {
        const auto found = state.frames.find(digest);
        if (found == state.frames.end() || !cluster_->keeps_bytes()) return std::nullopt;
        return found->second;
      });
      sink.done(digest, frame ? give(sink, digest, *frame) : fail(ErrorCode::kNotFound));
    }
  }

  Result<PublishOutcome> publish(const PublishGroup& group, BlobSource& source, Deadline /*deadline*/) override {
    INDUCTORFS_TRY_ASSIGN(auto encoded, encode_group(group));
    const auto taken = [&](const ClusterState& state) { return group.first_of_path && is_taken(state, group); };
    if (cluster_->state().with(taken)) return PublishOutcome::kSuperseded;
    const bool held = cluster_->state().with(
        [&](const ClusterState& state) { return holds_digests_in(state, group.scope, encoded); });
    bool sent = false;
    for (const codec::Digest& digest : distinct_digests(group.entries)) {
      INDUCTORFS_TRY_ASSIGN(auto stored, store(digest, source));
      sent = sent || stored;
    }
    return cluster_->state().notify_with([&](ClusterState& state) {
      if (taken(state)) return PublishOutcome::kSuperseded;
      return apply(state.scopes[group.scope], group, encoded, held && sent);
    });
  }

  Result<Delta> read_changes(const ScopeId& scope, const Position& from, Deadline /*deadline*/) override {
    INDUCTORFS_TRY(check_scope(scope));
    return cluster_->state().with([&](const ClusterState& state) {
      const auto found = state.scopes.find(scope);
      if (found == state.scopes.end() || found->second.head == Position{}) {
        return Delta{from != Position{}, {}, {}, {}, true};
      }
      Delta delta = changes_since(found->second, from);
      delta.at_head = true;
      return delta;
    });
  }

  Result<std::vector<ScopeId>> wait_for_changes(const std::vector<std::pair<ScopeId, Position>>& scopes,
                                                Milliseconds most, const std::function<bool()>& cancelled) override {
    for (const auto& [scope, position] : scopes) INDUCTORFS_TRY(check_scope(scope));
    const auto moved = [&](const ClusterState& state) {
      std::vector<ScopeId> names;
      for (const auto& [scope, position] : scopes) {
        const auto found = state.scopes.find(scope);
        if ((found == state.scopes.end() ? Position{} : found->second.head) != position) names.push_back(scope);
      }
      return names;
    };
    const Deadline deadline = Deadline::after(most);
    std::vector<ScopeId> names;
    while (names.empty() && !deadline.passed()) {
      // Before `cancelled` is asked, so that no wake after its answer is missed.
      const uint64_t seen = cluster_->state().with([](const ClusterState& state) { return state.wakes; });
      if (cancelled()) break;
      const auto woken = [&](const ClusterState& state) { return state.wakes != seen || !moved(state).empty(); };
      names = cluster_->state().wait_until(deadline.earlier(kCancelInterval).at(), woken, moved);
    }
    return names;
  }
  void wake_waiters() override {
    cluster_->state().notify_with([](ClusterState& state) { ++state.wakes; });
  }

  Result<void> report_lost(const ScopeId& scope, const std::string& path, const codec::Digest& digest,
                           Deadline /*deadline*/) override {
    INDUCTORFS_TRY(check_scope(scope));
    if (!codec::is_clean_path(path)) return fail(ErrorCode::kInvalid, "a path that is not clean");
    cluster_->state().notify_with([&](ClusterState& state) {
      StoredScope& held = state.scopes[scope];
      const auto entry = held.index.find(path);
      if (entry == held.index.end() || stored_digest(entry->second) != digest.raw()) return;
      held.advance(codec::encode_record({.set = {}, .removed = {path}}));
      held.index.erase(entry);
      give_contest_back(held, path);
      state.frames.erase(digest);
    });
    return {};
  }

  Result<SweepReport> sweep(const ScopeId& scope, bool /*wanted*/, Deadline /*deadline*/) override {
    INDUCTORFS_TRY(check_scope(scope));
    if (!cluster_->keeps_bytes()) return SweepReport{};
    return cluster_->state().notify_with([&](ClusterState& state) {
      SweepReport report{.ours = true};
      const auto found = state.scopes.find(scope);
      if (found == state.scopes.end()) return report;
      StoredScope& held = found->second;
      report.looked_at = held.index.size();
      std::vector<std::string> gone;
      for (const auto& [path, value] : held.index) {
        const auto digest = codec::Digest::from_raw(stored_digest(value));
        if (!digest || !state.frames.contains(*digest)) gone.push_back(path);
      }
      report.gone = gone.size();
      if (gone.empty()) return report;
      held.advance(codec::encode_record({.set = {}, .removed = gone}));
      for (const std::string& path : gone) {
        held.index.erase(path);
        give_contest_back(held, path);
      }
      return report;
    });
  }

  Result<void> announce_scope(const ScopeInformation& scope, Deadline /*deadline*/) override {
    INDUCTORFS_TRY(check_information(scope));
    cluster_->state().with([&](ClusterState& state) {
      std::erase_if(state.announced, [&](const ScopeInformation& known) { return known.id == scope.id; });
      state.announced.push_front(scope);
      if (state.announced.size() > kAnnouncedScopesLimit) state.announced.pop_back();
    });
    return {};
  }
  Result<std::vector<ScopeInformation>> list_scopes(size_t limit, Deadline /*deadline*/) override {
    return cluster_->state().with([&](const ClusterState& state) {
      const auto count = static_cast<ptrdiff_t>(std::min(limit, state.announced.size()));
      return std::vector<ScopeInformation>(state.announced.begin(), state.announced.begin() + count);
    });
  }

  Result<std::vector<ScopeId>> scopes_with(const std::string& path, std::span<const ScopeId> scopes,
                                           Deadline /*deadline*/) override {
    return cluster_->state().with([&](const ClusterState& state) {
      std::vector<ScopeId> holders;
      for (const ScopeId& id : scopes) {
        const auto found = state.scopes.find(id);
        if (found == state.scopes.end()) continue;
        const auto count = found->second.counts.find(path);
        const bool has_group = count != found->second.counts.end() && count->second > 0;
        if (has_group || found->second.index.contains(path)) holders.push_back(id);
      }
      return holders;
    });
  }

  Result<BeatAnswer> beat(const std::string& id, std::string_view record, Deadline /*deadline*/) override {
    if (record.size() > kNodeRecordLimit) return fail(ErrorCode::kInvalid, "the record of a mount is too long");
    return cluster_->state().with([&](ClusterState& state) {
      if (!record.empty()) state.nodes[id] = {std::string(record), std::chrono::steady_clock::now()};
      return BeatAnswer{state.orders, {}};
    });
  }
  void leave(const std::string& id, Deadline /*deadline*/) override {
    cluster_->state().with([&](ClusterState& state) { state.nodes.erase(id); });
  }
  Result<std::vector<NodeRecord>> list_nodes(size_t limit, Deadline /*deadline*/) override {
    return cluster_->state().with([&](const ClusterState& state) {
      std::vector<NodeRecord> records;
      for (const auto& [id, node] : state.nodes) {
        const auto age = std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - node.second);
        if (age < kNodeLifetime && records.size() < limit) records.push_back({id, node.first, age});
      }
      return records;
    });
  }
  Result<void> remember_node(const std::string& name, Deadline /*deadline*/) override {
    if (name.empty() || name.size() > kNodeNameLimit) return fail(ErrorCode::kInvalid, "no name of a mount");
    cluster_->state().with([&](ClusterState& state) { state.seen[name] = std::chrono::steady_clock::now(); });
    return {};
  }
  void forget_node(const std::string& name, Deadline /*deadline*/) override {
    cluster_->state().with([&](ClusterState& state) { state.seen.erase(name); });
  }
  Result<std::vector<MissingNode>> list_missing_nodes(Milliseconds least, Deadline /*deadline*/) override {
    return cluster_->state().with([&](const ClusterState& state) {
      std::vector<MissingNode> missing;
      for (const auto& [name, at] : state.seen) {
        const auto age = std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - at);
        if (age >= least) missing.push_back({name, age});
      }
      return missing;
    });
  }
  Result<OrdersNow> read_orders(Deadline /*deadline*/) override {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return cluster_->state().with([&](const ClusterState& state) {
      return OrdersNow{state.orders, std::chrono::duration_cast<Milliseconds>(now).count()};
    });
  }
  Result<bool> replace_orders(const std::string& before, const std::string& after, Deadline /*deadline*/) override {
    if (after.size() > kOrdersLimit) return fail(ErrorCode::kInvalid, "the orders are too long");
    return cluster_->state().with([&](ClusterState& state) {
      if (state.orders != before) return false;
      state.orders = after;
      return true;
    });
  }
  Result<PurgeReport> purge(const ScopeId& scope, const std::function<bool(const codec::Entry&)>& selects, bool dry_run,
                            Deadline /*deadline*/) override {
    INDUCTORFS_TRY(check_scope(scope));
    return cluster_->state().notify_with([&](ClusterState& state) {
      PurgeReport report;
      const auto found = state.scopes.find(scope);
      if (found == state.scopes.end()) return report;
      StoredScope& held = found->second;
      std::vector<std::string> chosen;
      for (const auto& [path, value] : held.index) {
        const auto entry = codec::decode_entry(path, value);
        ++report.looked_at;
        if (!entry) ++report.unknown;
        if (!entry || !selects(*entry)) continue;
        ++report.selected;
        report.bytes += entry->size;
        if (report.paths.size() < kPurgePaths) report.paths.push_back(path);
        chosen.push_back(path);
      }
      if (dry_run || chosen.empty()) return report;
      held.advance(codec::encode_record({.set = {}, .removed = chosen}));
      for (const std::string& path : chosen) {
        held.index.erase(path);
        give_contest_back(held, path);
      }
      report.removed = chosen.size();
      return report;
    });
  }
  Result<void> remove_blob(const codec::Digest& digest, Deadline /*deadline*/) override {
    cluster_->state().with([&](ClusterState& state) { state.frames.erase(digest); });
    return {};
  }
  Result<std::vector<Lease>> hold_leases(std::span<const LeaseName> names, const std::string& holder,
                                         Milliseconds lifetime, Deadline /*deadline*/) override {
    INDUCTORFS_TRY(check_leases(names, holder));
    const SteadyTime now = std::chrono::steady_clock::now();
    return cluster_->state().with([&](ClusterState& state) {
      std::erase_if(state.leases, [&](const auto& one) { return one.second.until <= now; });
      std::vector<Lease> answers;
      for (const LeaseName& one : names) {
        const auto [held, is_free] = state.leases.try_emplace({one.scope, one.name});
        if (is_free || held->second.holder == holder) held->second = {holder, now + lifetime};
        const bool given_up = held->second.until <= now;
        answers.push_back({!given_up && held->second.holder == holder, given_up ? "" : held->second.holder});
      }
      return answers;
    });
  }
  Result<ServerFacts> probe(Deadline /*deadline*/) override {
    return ServerFacts{.version = "memory", .eviction_policy = "noeviction"};
  }
  Health health() const override { return {true, "memory", ""}; }

 private:
  static Result<void> give(BlobSink& sink, const codec::Digest& digest, std::string_view frame) {
    for (size_t at = 0; at < frame.size(); at += kPieceSize) {
      INDUCTORFS_TRY(sink.piece(digest, frame.substr(at, kPieceSize)));
    }
    return {};
  }

  static bool holds_digests_in(const ClusterState& state, const ScopeId& scope, const EncodedGroup& group) {
    const auto found = state.scopes.find(scope);
    return found != state.scopes.end() && holds_digests(found->second, group);
  }

  /// Other bytes of another origin, which the cluster still has, are under the group's path.
  static bool is_taken(const ClusterState& state, const PublishGroup& group) {
    const auto scope = state.scopes.find(group.scope);
    if (scope == state.scopes.end()) return false;
    const auto held = scope->second.index.find(group.entries.front().path);
    if (held == scope->second.index.end() || is_of_origin(held->second, group.entries.front())) return false;
    const auto digest = codec::Digest::from_raw(stored_digest(held->second));
    return digest && *digest != group.entries.front().digest && state.frames.contains(*digest);
  }

  /// Whether it had to be sent.
  Result<bool> store(const codec::Digest& digest, BlobSource& source) {
    const bool there = cluster_->state().with([&](const ClusterState& state) { return state.frames.contains(digest); });
    if (there) return false;
    std::string frame;
    if (cluster_->keeps_bytes()) {
      INDUCTORFS_TRY(source.read(digest, kPieceSize, [&](std::string_view piece) -> Result<void> {
        frame += piece;
        return {};
      }));
    }
    cluster_->state().with([&](ClusterState& state) { state.frames.emplace(digest, std::move(frame)); });
    return true;
  }

  std::shared_ptr<MemoryCluster> cluster_;
};

}  // namespace

std::shared_ptr<MemoryCluster> make_memory_cluster() { return std::make_shared<MemoryCluster>(true); }

void evict_blob(MemoryCluster& cluster, const codec::Digest& digest) {
  cluster.state().with([&](ClusterState& state) { state.frames.erase(digest); });
}

Remote open_memory(std::shared_ptr<MemoryCluster> cluster) {
  const auto statements = cluster->statements();
  const auto all = std::make_shared<MemoryRemote>(std::move(cluster));
  return {all, all, all, all, statements};
}

Remote make_local_remote() { return open_memory(std::make_shared<MemoryCluster>(false)); }

}  // namespace inductorfs::remote
