// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "inductorfs/base/budget.h"
#include "inductorfs/base/clock.h"
#include "inductorfs/base/counters.h"
#include "inductorfs/base/result.h"
#include "inductorfs/codec/digest.h"
#include "inductorfs/codec/entry.h"

/// The cluster's side: blobs by digest, and per scope an index of entries with a log of changes. Knows nothing of
/// families or of this host. docs/formats.md has the keys in Redis.
namespace inductorfs::remote {

/// A scope's name: lower-case hex, the digest of the facts it stands for (layout/scope.h).
using ScopeId = std::string;

/// How far a reader has followed a scope. The nonce of each generation makes a lost tail visible after a failover:
/// equal generation, other nonce, means another history.
struct Position {
  uint64_t generation = 0;
  std::string nonce;
  bool operator==(const Position&) const = default;
};

/// What changed in one scope since a position. `reset`: forget all that was known of the scope first.
struct Delta {
  bool reset = false;
  std::vector<codec::Entry> set;
  std::vector<std::string> removed;
  Position position;
  bool at_head = false;  ///< nothing came after `position` when this was read: another step would be empty
};

/// Receives blobs, one after the other. Confined to the thread that called fetch().
class BlobSink {
 public:
  virtual ~BlobSink() = default;
  /// A piece of the blob's frame (codec/frame.h), in order.
  [[nodiscard]] virtual Result<void> piece(const codec::Digest& digest, std::string_view frame_piece) = 0;
  /// Exactly once for each digest asked for. Success: all pieces have been given. kNotFound: the cluster has it not
  /// (evicted). kNotSupported: it is there, and only a newer release can read it. kCorrupt: it is damaged. What
  /// piece() answered is handed back. Anything else: the bytes could not be had now.
  virtual void done(const codec::Digest& digest, Result<void> outcome) = 0;
};

/// Gives the frame of a blob that is to be stored. Confined to the thread that called publish().
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
  /// Publish only while the cluster holds at most `most` earlier groups under the same key: 0 for "first one wins".
  /// Checked and counted by the server in the same step as the publish.
  struct Contest {
    std::string key;
    uint64_t most = 0;
  };
  std::optional<Contest> contest;
  /// Publish only while the entry of entries[0].path still has this digest (nullopt inside: while there is none): for
  /// artefacts that are merged with what the cluster has.
  struct Replaces {
    std::optional<codec::Digest> digest;
  };
  std::optional<Replaces> replaces;
  /// Publish only while the cluster has nothing under the path of the one entry, has lost the bytes of what it has, or
  /// has it of this very origin: for artefacts whose bytes differ from writer to writer and mean the same.
  bool first_of_path = false;
};

/// What a scope stands for. No control characters in either text but line feed and tab.
struct ScopeInformation {
  ScopeId id;
  std::string family;  ///< the name of one family that is in it, 1 .. kScopeFamilyLimit bytes
  std::string text;    ///< layout::Scope::text; its SHA-256 is the id; up to kScopeTextLimit bytes
  bool operator==(const ScopeInformation&) const = default;
};
inline constexpr size_t kScopeFamilyLimit = 64;
inline constexpr size_t kScopeTextLimit = size_t{64} << 10;
/// Scopes that a cluster remembers; those whose last announcement is the oldest go first.
inline constexpr size_t kAnnouncedScopesLimit = 4096;

enum class PublishOutcome {
  kPublished,
  kHeld,        ///< the cluster holds these bytes under these paths already; nothing was changed
  kSuperseded,  ///< the contest was lost, or another writer was the first of the path; nothing was changed
  kConflict,    ///< `replaces` no longer holds; nothing was changed
  kFull,        ///< the scope holds as many entries as it may; nothing was changed, a sweep makes room
  kClaimed,     ///< another host sends the same just now; nothing was changed, ask again in a second
};

struct ServerFacts {
  std::string version;
  std::string eviction_policy;
  uint64_t memory_limit = 0;
  /// What an operator should change, one line each; empty when all is well.
  std::vector<std::string> warnings;
};

/// What a sweep of a scope has done.
struct SweepReport {
  bool ours = false;       ///< false: another mount does it, or has done it a while ago
  uint64_t looked_at = 0;  ///< entries
  uint64_t gone = 0;       ///< removed: the cluster has lost their blobs
  uint64_t unused = 0;     ///< removed: the least recently used beyond the limit
};

/// Blocks up to the deadlines given. Safe for concurrent use. Every method may answer kUnavailable or kTimedOut, which
/// mean "not now"; while the breaker is open (after failures, with back-off and jitter) they answer at once.
class Remote {
 public:
  virtual ~Remote() = default;

  /// All of `digests` in one pipeline, with at most a few MiB in flight.
  virtual void fetch(std::span<const codec::Digest> digests, BlobSink& sink, Deadline deadline) = 0;
  /// For somebody who waits: all of it, from a free connection over each round trip to a second try, takes no longer
  /// than the budget. A remote that knows no progress takes its total as the deadline.
  virtual void fetch_within(std::span<const codec::Digest> digests, BlobSink& sink, Budget& budget) {
    fetch(digests, sink, budget.total());
  }
  /// A fetch would be refused at once: the breaker is open, and no probe is due.
  [[nodiscard]] virtual bool resting() const { return false; }

  /// Blobs first (those that the cluster lacks; the lifetime of the others is renewed), then all entries and the log
  /// record in one atomic step. Where every entry is there with its digest nothing is sent, whatever mtime and origin
  /// it has; where its blob is gone the blob is sent again, with a record. Repeating a publish after an unknown outcome
  /// is harmless.
  [[nodiscard]] virtual Result<PublishOutcome> publish(const PublishGroup& group, BlobSource& source,
                                                       Deadline deadline) = 0;

  /// Somebody uses these blobs: their lifetime begins anew, where a part of it is over. Best effort; cheap when they
  /// are fresh.
  [[nodiscard]] virtual Result<void> renew(std::span<const codec::Digest> /*digests*/, Deadline /*deadline*/) {
    return {};
  }

  /// What changed in `scope` since `from`; a whole snapshot (reset) when that history is not available. One step may
  /// return less than everything: the caller goes on until a delta is at the head, or empty and leaves the position
  /// unchanged.
  [[nodiscard]] virtual Result<Delta> read_changes(const ScopeId& scope, const Position& from, Deadline deadline) = 0;

  /// Returns when some of the scopes have moved past their positions, and which; or none, when `most` has passed or
  /// `cancelled` says so. A history that began anew below a position is noticed within RemoteOptions::head_interval.
  [[nodiscard]] virtual Result<std::vector<ScopeId>> wait_for_changes(
      const std::vector<std::pair<ScopeId, Position>>& scopes, Milliseconds most,
      const std::function<bool()>& cancelled) = 0;

  /// Tells the cluster that an entry's blob is gone or wrong: the entry is removed if it still has this digest.
  [[nodiscard]] virtual Result<void> report_lost(const ScopeId& scope, const std::string& path,
                                                 const codec::Digest& digest, Deadline deadline) = 0;

  /// Removes entries of a scope whose blobs are gone, and those that were used least recently where it is nearly full.
  /// One mount of the cluster does it, about once a day; `wanted`: it is full now, so that it is done again even so.
  [[nodiscard]] virtual Result<SweepReport> sweep(const ScopeId& /*scope*/, bool /*wanted*/, Deadline /*deadline*/) {
    return SweepReport{};
  }

  /// Tells the cluster what a scope's id stands for, so that another host's operator can see in what it differs. Once
  /// it has succeeded, another call for the same scope sends nothing; the cluster's memory of it is renewed by
  /// reading that scope and by waiting for it. kInvalid: not a scope's information, or the id is not the text's digest.
  /// kNotPermitted: this user may only read.
  [[nodiscard]] virtual Result<void> announce_scope(const ScopeInformation& scope, Deadline deadline) = 0;
  /// The scopes that hosts announced and that are still in use, newest announcement first, at most `limit`. What does
  /// not fit its id is left out and counted ("remote.bad_scopes").
  [[nodiscard]] virtual Result<std::vector<ScopeInformation>> list_scopes(size_t limit, Deadline deadline) = 0;

  /// What the server is; kInvalid when it is no Redis, kNotSupported when it is too old (before 7.0).
  [[nodiscard]] virtual Result<ServerFacts> probe(Deadline deadline) = 0;

  struct Health {
    bool reachable = false;
    std::string address;     ///< without secrets
    std::string last_error;  ///< empty when the last call went well
  };
  [[nodiscard]] virtual Health health() const = 0;

  /// Another handle to the same, whose calls end soon with kUnavailable once `cancelled` says so: for threads whose end
  /// somebody waits for. nullptr: no call of this remote rests. Must not outlive this object.
  [[nodiscard]] virtual std::unique_ptr<Remote> cancellable(std::function<bool()> /*cancelled*/) { return nullptr; }
};

struct RemoteOptions {
  std::string url;
  std::string password_file;
  std::string ca_file;
  std::string certificate_file;
  std::string key_file;
  std::string prefix = "ifs1";
  std::string client_name = "inductorfs";
  size_t connections = 6;               ///< for fetches: FileSystemOptions::fetch_threads, a prefetch and a merge
  Milliseconds connect_patience{1000};  ///< most that a new connection may take, greeting included
  Milliseconds without_progress{250};   ///< of a fetch that comes without a budget
  std::chrono::seconds blob_lifetime{30 * 24 * 3600};
  Milliseconds follow_rest{10'000};    ///< of a follower at the server; then it looks whether a scope has gone
  Milliseconds head_interval{15'000};  ///< between two looks at all heads, jittered; more with over ten scopes
  Milliseconds idle_lifetime{30'000};  ///< of a connection that nobody uses, but for one to fetch and one to ask
  uint64_t index_limit = 2'000'000;    ///< entries of one scope that this host is ready to hold
  uint64_t log_length = 10'000;        ///< records kept in a scope's log (MAXLEN ~)
};

/// Does not connect: a server that is absent now is no error. kInvalid for a URL that is none, or a secret file that
/// cannot be read.
[[nodiscard]] Result<std::unique_ptr<Remote>> open_redis(const RemoteOptions& options, Counters& counters);

/// A whole cluster in memory: a mount without --remote, unit tests, and the reference of the contract suite.
/// Handles that share one `MemoryCluster` see each other.
class MemoryCluster;
[[nodiscard]] std::shared_ptr<MemoryCluster> make_memory_cluster();
[[nodiscard]] std::unique_ptr<Remote> open_memory(std::shared_ptr<MemoryCluster> cluster);
/// Drops a blob, as a server under memory pressure may at any time.
void evict_blob(MemoryCluster& cluster, const codec::Digest& digest);

}  // namespace inductorfs::remote
