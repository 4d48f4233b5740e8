// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "inductorfs/base/budget.h"
#include "inductorfs/base/clock.h"
#include "inductorfs/base/counters.h"
#include "inductorfs/base/defaults.h"
#include "inductorfs/base/result.h"
#include "inductorfs/codec/digest.h"
#include "inductorfs/codec/entry.h"
#include "inductorfs/remote/gather.h"
#include "inductorfs/remote/leases.h"
#include "inductorfs/remote/nodes.h"
#include "inductorfs/remote/options.h"
#include "inductorfs/remote/server_facts.h"

/// The cluster: blobs by digest, and for each scope an index of entries with a log of changes. This module knows
/// nothing of families or of this host. docs/formats.md has the keys in Redis.
namespace inductorfs::remote {

/// A scope's name: lower-case hex, the digest of the facts it stands for (layout/scope.h).
using ScopeId = std::string;

/// How far a reader has followed a scope. Each generation has a nonce, which makes a lost tail visible after a
/// failover: an equal generation with another nonce means another history.
struct Position {
  uint64_t generation = 0;
  std::string nonce;
  bool operator==(const Position&) const = default;
};

/// The changes of one scope since a position. `reset` means that the reader must first forget all it knew of the scope.
struct Delta {
  bool reset = false;
  std::deque<codec::Entry> set;  ///< so that the memory of what was taken from its front can be used again
  std::vector<std::string> removed;
  Position position;
  bool at_head = false;  ///< nothing came after `position` when this was read, so another step would be empty
};

/// Receives blobs, one after the other. Confined to the thread that called fetch().
class BlobSink {
 public:
  virtual ~BlobSink() = default;
  /// Takes the next piece of the blob's frame (codec/frame.h); pieces come in order.
  [[nodiscard]] virtual Result<void> piece(const codec::Digest& digest, std::string_view frame_piece) = 0;
  /// Ends one digest; called exactly once for each digest that was asked for. Success: all pieces have been given.
  /// kNotFound: the cluster does not have the blob (evicted). kNotSupported: the cluster has it, but only a newer
  /// release can read it. kCorrupt: it is damaged. An error that piece() answered is handed back. Any other error: the
  /// bytes could not be had now.
  virtual void done(const codec::Digest& digest, Result<void> outcome) = 0;
};

/// Provides the frame of a blob that is to be stored. Confined to the thread that called publish().
class BlobSource {
 public:
  virtual ~BlobSource() = default;
  /// Calls `sink` with the pieces of the frame, each but the last exactly `piece` bytes long.
  [[nodiscard]] virtual Result<void> read(const codec::Digest& digest, size_t piece,
                                          const std::function<Result<void>(std::string_view)>& sink) = 0;
};

/// Entries that become visible together.
struct PublishGroup {
  ScopeId scope;
  std::vector<codec::Entry> entries;  ///< 1 .. codec::kRecordEntryLimit
  /// Publish only while the cluster holds at most `most` earlier groups under the same key; 0 means that the first one
  /// wins. The server checks and counts in the same step as the publish.
  struct Contest {
    std::string key;
    uint64_t most = 0;
  };
  std::optional<Contest> contest;
  /// Publish only while the entry of entries[0].path still has this digest; an empty digest means while there is no
  /// entry. This is for artefacts that are merged with what the cluster has.
  struct Replaces {
    std::optional<codec::Digest> digest;
  };
  std::optional<Replaces> replaces;
  /// Publish only if the cluster has nothing under the path of the one entry, or has lost that entry's bytes, or has it
  /// from this very origin. This is for artefacts whose bytes differ from writer to writer and mean the same.
  bool first_of_path = false;
};

/// What a scope stands for. Neither text has control characters other than line feed and tab.
struct ScopeInformation {
  ScopeId id;
  std::string family;  ///< the name of one family of the scope, 1 .. kScopeFamilyLimit bytes
  std::string text;    ///< layout::Scope::text; its SHA-256 is the id; up to kScopeTextLimit bytes
  bool operator==(const ScopeInformation&) const = default;
};
inline constexpr size_t kScopeFamilyLimit = 64;
inline constexpr size_t kScopeTextLimit = size_t{64} << 10;
/// The number of scopes that a cluster remembers; those whose last announcement is the oldest go first.
inline constexpr size_t kAnnouncedScopesLimit = 4096;

enum class PublishOutcome {
  kPublished,
  kHeld,        ///< the cluster already holds these bytes under these paths; nothing was changed
  kSuperseded,  ///< the contest was lost, or another writer was the first of the path; nothing was changed
  kConflict,    ///< `replaces` no longer holds; nothing was changed
  kNewer,       ///< under one of the paths is an entry that only a newer release can read; nothing was changed
  kFull,        ///< the scope holds as many entries as it may; nothing was changed, and a sweep makes room
  kClaimed,     ///< another host is sending the same now; nothing was changed; ask again in a second
};

/// What a sweep of a scope did.
struct SweepReport {
  bool ours = false;       ///< false: another mount does it, or did it a while ago
  uint64_t looked_at = 0;  ///< entries
  uint64_t unknown = 0;    ///< entries left alone because another release wrote them, or nobody can read them
  uint64_t gone = 0;       ///< entries removed because the cluster has lost their blobs
  uint64_t unused = 0;     ///< entries removed as the least recently used ones beyond the limit
};

/// One cluster. Its calls block on the network, up to the deadlines given. Every method may answer kUnavailable or
/// kTimedOut, which mean "not now"; while the breaker is open (after failures, with back-off and jitter) they answer at
/// once. Safe for concurrent use.
class Remote {
 public:
  virtual ~Remote() = default;

  /// Fetches all of `digests` in one pipeline, with at most a few MiB in flight.
  virtual void fetch(std::span<const codec::Digest> digests, BlobSink& sink, Deadline deadline) = 0;
  /// Fetches for a waiting caller: everything, from a free connection over each round trip to a second try, takes no
  /// longer than the budget. An implementation that does not measure progress takes the budget's total as the deadline.
  virtual void fetch_within(std::span<const codec::Digest> digests, BlobSink& sink, Budget& budget) {
    fetch(digests, sink, budget.total());
  }
  /// Says whether a fetch would be refused at once, because the breaker is open and no probe is due.
  [[nodiscard]] virtual bool resting() const { return false; }

  /// Publishes a group: first the blobs that the cluster lacks (the lifetime of the others is renewed), then all
  /// entries and the log record in one atomic step. If every entry is there with its digest, nothing is sent, whatever
  /// mtime and origin it has; if the blob of such an entry is gone, the blob is sent again, with a record. Repeating a
  /// publish after an unknown outcome is harmless.
  [[nodiscard]] virtual Result<PublishOutcome> publish(const PublishGroup& group, BlobSource& source,
                                                       Deadline deadline) = 0;

  /// Begins the lifetime of these blobs anew, because a host uses them, if a part of it is over. Best effort; cheap
  /// when they are fresh.
  [[nodiscard]] virtual Result<void> renew(std::span<const codec::Digest> /*digests*/, Deadline /*deadline*/) {
    return {};
  }

  /// Puts the small ones of these blobs, in this order, into solid blocks (codec/solid_block.h) where that takes less
  /// of the cluster's memory, so like should stand beside like. fetch() gives each blob as before; releases without
  /// blocks cannot read it. What is a member already, not there, or gathered by another host just now stays as it is.
  [[nodiscard]] virtual Result<GatherReport> gather(std::span<const codec::Digest> /*digests*/, Deadline /*deadline*/) {
    return GatherReport{};
  }

  /// Reads what changed in `scope` since `from`, or a whole snapshot (reset) where that history is gone, or is longer
  /// than a snapshot. One step may return less than everything: the caller goes on until a delta is at the head, or is
  /// empty and leaves the position unchanged.
  [[nodiscard]] virtual Result<Delta> read_changes(const ScopeId& scope, const Position& from, Deadline deadline) = 0;

  /// Waits until some of the scopes have moved past their positions, and returns those; returns none when `most` has
  /// passed or `cancelled` says so. A history that began anew below a position is noticed within
  /// RemoteOptions::head_interval.
  [[nodiscard]] virtual Result<std::vector<ScopeId>> wait_for_changes(
      const std::vector<std::pair<ScopeId, Position>>& scopes, Milliseconds most,
      const std::function<bool()>& cancelled) = 0;
  /// Makes the calls of wait_for_changes that are under way ask `cancelled` at once. A remote that cannot do this
  /// ignores it: its calls ask `cancelled` about ten times a second anyway.
  virtual void wake_waiters() {}

  /// Tells the cluster that an entry's blob is gone or wrong; the entry is removed if it still has this digest.
  [[nodiscard]] virtual Result<void> report_lost(const ScopeId& scope, const std::string& path,
                                                 const codec::Digest& digest, Deadline deadline) = 0;

  /// Removes the entries of a scope whose blobs are gone and, if the scope is nearly full, the least recently used
  /// ones. One mount of the cluster does it, about once a day. `wanted` says that the scope is full now, so that it is
  /// swept again before the day is over.
  [[nodiscard]] virtual Result<SweepReport> sweep(const ScopeId& /*scope*/, bool /*wanted*/, Deadline /*deadline*/) {
    return SweepReport{};
  }

  /// Tells the cluster what a scope's id stands for, so that an operator on another host can see how it differs. After
  /// a success, another call for the same scope sends nothing; reading that scope and waiting for it renew the
  /// cluster's memory of it. kInvalid: this is no scope's information, or the id is not the digest of the text.
  /// kNotPermitted: this user may only read.
  [[nodiscard]] virtual Result<void> announce_scope(const ScopeInformation& scope, Deadline deadline) = 0;
  /// Lists the scopes that hosts announced and that are still in use, newest announcement first, at most `limit`. A
  /// scope whose text does not fit its id is left out and counted ("remote.bad_scopes").
  [[nodiscard]] virtual Result<std::vector<ScopeInformation>> list_scopes(size_t limit, Deadline deadline) = 0;

  /// Returns those of these scopes that have an entry of this path, or a group under this contest key.
  [[nodiscard]] virtual Result<std::vector<ScopeId>> scopes_with(const std::string& /*path*/,
                                                                 std::span<const ScopeId> /*scopes*/,
                                                                 Deadline /*deadline*/) {
    return std::vector<ScopeId>{};
  }

  /// Reads the orders and, unless it is empty, writes this mount's record with a lifetime of kNodeLifetime, in one
  /// round trip, and one more when the list of mounts has to be told of this one. A remote that only reads writes none.
  /// `id` is 1 .. kNodeIdLimit lower-case hex digits; a longer record than kNodeRecordLimit is kInvalid. A record that
  /// the server refuses is no error (BeatAnswer::not_listed). kNotPermitted: this user may not read the orders.
  [[nodiscard]] virtual Result<BeatAnswer> beat(const std::string& /*id*/, std::string_view /*record*/,
                                                Deadline /*deadline*/) {
    return fail(ErrorCode::kNotSupported);
  }
  /// Removes this mount's record, because the mount ends. Best effort.
  virtual void leave(const std::string& /*id*/, Deadline /*deadline*/) {}
  /// Lists the records whose lifetime is not over, at most `limit`.
  [[nodiscard]] virtual Result<std::vector<NodeRecord>> list_nodes(size_t /*limit*/, Deadline /*deadline*/) {
    return fail(ErrorCode::kNotSupported);
  }
  [[nodiscard]] virtual Result<OrdersNow> read_orders(Deadline /*deadline*/) { return fail(ErrorCode::kNotSupported); }
  /// Replaces the orders if they still are `before`, and answers false if they are not. They live for two lifetimes of
  /// blobs, which each heartbeat now and then begins anew. kInvalid over kOrdersLimit.
  [[nodiscard]] virtual Result<bool> replace_orders(const std::string& /*before*/, const std::string& /*after*/,
                                                    Deadline /*deadline*/) {
    return fail(ErrorCode::kNotSupported);
  }
  /// Removes the entries of a scope that `selects` chooses, with records in the log as a sweep does. A dry run only
  /// counts.
  [[nodiscard]] virtual Result<PurgeReport> purge(const ScopeId& /*scope*/,
                                                  const std::function<bool(const codec::Entry&)>& /*selects*/,
                                                  bool /*dry_run*/, Deadline /*deadline*/) {
    return fail(ErrorCode::kNotSupported);
  }
  /// Removes a blob before its lifetime is over, and with it the solid block that it lies in.
  [[nodiscard]] virtual Result<void> remove_blob(const codec::Digest& /*digest*/, Deadline /*deadline*/) {
    return fail(ErrorCode::kNotSupported);
  }

  /// Takes each of these leases that nobody has, and begins the lifetime of those anew that `holder` has, in one round
  /// trip; a lifetime of 0 gives those up. Returns who has each of them now, in order. kNotPermitted: this user may
  /// only read.
  [[nodiscard]] virtual Result<std::vector<Lease>> hold_leases(std::span<const LeaseName> /*names*/,
                                                               const std::string& /*holder*/, Milliseconds /*lifetime*/,
                                                               Deadline /*deadline*/) {
    return fail(ErrorCode::kNotSupported);
  }

  /// Asks the server what it is. kInvalid when it is not Redis, kNotSupported when it is too old (before 7.0).
  [[nodiscard]] virtual Result<ServerFacts> probe(Deadline deadline) = 0;

  struct Health {
    bool reachable = false;
    std::string address;     ///< without secrets
    std::string last_error;  ///< empty when the last call went well
  };
  [[nodiscard]] virtual Health health() const = 0;

  /// Returns how often another server has taken the place of the one that answered. What was acknowledged before may be
  /// lost to the cluster, and what is known of its index: both have to be looked at again. From then on no call
  /// succeeds at the server before.
  [[nodiscard]] virtual uint64_t server_changes() const { return 0; }
  /// Asks now whether that is so. kUnavailable when nobody can say. Blocks up to the deadline.
  [[nodiscard]] virtual Result<void> confirm_server(Deadline /*deadline*/) { return {}; }

  /// Makes another handle to the same cluster, whose calls end soon with kUnavailable once `cancelled` says so; for
  /// threads whose end somebody waits for. nullptr means that no call of this remote blocks for long. The handle must
  /// not outlive this object.
  [[nodiscard]] virtual std::unique_ptr<Remote> cancellable(std::function<bool()> /*cancelled*/) { return nullptr; }
};

/// Opens a remote on Redis. It does not connect, so a server that is absent now is no error. kInvalid when the URL is
/// not one, or a secret file cannot be read. `counters` must outlive the remote.
[[nodiscard]] Result<std::unique_ptr<Remote>> open_redis(const RemoteOptions& options, Counters& counters);

/// A whole cluster in memory, for a mount without --remote, for unit tests, and as the reference of the contract suite.
/// Handles that share one `MemoryCluster` see each other's changes.
class MemoryCluster;
[[nodiscard]] std::shared_ptr<MemoryCluster> make_memory_cluster();
[[nodiscard]] std::unique_ptr<Remote> open_memory(std::shared_ptr<MemoryCluster> cluster);
/// Drops a blob, as a server under memory pressure may at any time.
void evict_blob(MemoryCluster& cluster, const codec::Digest& digest);

}  // namespace inductorfs::remote
