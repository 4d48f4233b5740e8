// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/result.h"
#include "inductorfs/codec/digest.h"
#include "inductorfs/codec/entry.h"
#include "inductorfs/remote/blobs.h"

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
  uint64_t uncovered = 0;  ///< keys of entries whose statement has ended (statements.h)
};

/// The entries of a cluster: for each scope an index, with a log of its changes. Calls block and fail as those of a
/// Remote. Safe for concurrent use.
class Index {
 public:
  virtual ~Index() = default;

  /// Publishes a group: first the blobs that the cluster lacks (the lifetime of the others is renewed), then all
  /// entries and the log record in one atomic step. If every entry is there with its digest, nothing is sent, whatever
  /// mtime and origin it has; if the blob of such an entry is gone, the blob is sent again, with a record. Repeating a
  /// publish after an unknown outcome is harmless.
  [[nodiscard]] virtual Result<PublishOutcome> publish(const PublishGroup& group, BlobSource& source,
                                                       Deadline deadline) = 0;

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

  /// Returns how often another server has taken the place of the one that answered. What was acknowledged before may be
  /// lost to the cluster, and what is known of its index: both have to be looked at again. From then on no call
  /// succeeds at the server before.
  [[nodiscard]] virtual uint64_t server_changes() const { return 0; }
  /// Asks now whether that is so. kUnavailable when nobody can say. Blocks up to the deadline.
  [[nodiscard]] virtual Result<void> confirm_server(Deadline /*deadline*/) { return {}; }

  /// As Blobs::blobs_until().
  [[nodiscard]] virtual std::shared_ptr<Index> index_until(std::function<bool()> /*cancelled*/) {
    return {std::shared_ptr<Index>(), this};
  }
};

}  // namespace inductorfs::remote
