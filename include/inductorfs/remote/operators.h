// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/result.h"
#include "inductorfs/codec/digest.h"
#include "inductorfs/codec/entry.h"
#include "inductorfs/remote/index.h"

/// What the mounts of a cluster tell an operator, and what an operator tells the mounts. The cluster keeps both as
/// bytes that it does not understand; whoever reads them must take them for anybody's.
namespace inductorfs::remote {

/// How long a mount's record outlives its last heartbeat.
inline constexpr Milliseconds kNodeLifetime{90'000};
inline constexpr size_t kNodeIdLimit = 64;              ///< lower-case hex digits
inline constexpr size_t kNodeRecordLimit = 8ULL << 10;  ///< bytes
inline constexpr size_t kNodesLimit = 4096;             ///< records of one cluster; the oldest registrations go first
inline constexpr size_t kOrdersLimit = 64ULL << 10;     ///< bytes
inline constexpr size_t kNodeNameLimit = 2ULL << 10;    ///< bytes
/// How often a mount has itself remembered, and after how long without that it is missing: two may be lost.
inline constexpr Milliseconds kRememberInterval{60'000};
inline constexpr Milliseconds kMissingAfter{150'000};
/// How long a missing mount is remembered.
inline constexpr Milliseconds kMissingLifetime{7LL * 24 * 3600 * 1000};

/// What a mount has written about itself.
struct NodeRecord {
  std::string id;
  std::string text;    ///< up to kNodeRecordLimit bytes of anything
  Milliseconds age{};  ///< since the heartbeat, by the server's clock
};

/// A mount that was remembered, and has not been since.
struct MissingNode {
  std::string name;    ///< as the mount gave it, or anybody
  Milliseconds age{};  ///< since it was remembered, by the server's clock
};

/// The answer to a heartbeat.
struct BeatAnswer {
  std::string orders;      ///< Operators::replace_orders(); empty if there are none, or none that can be read
  std::string not_listed;  ///< why the record was not written; empty if it was
};

struct OrdersNow {
  std::string text;         ///< as BeatAnswer::orders
  int64_t server_time = 0;  ///< milliseconds since 1970
};

/// What a purge found in one scope, and did.
struct PurgeReport {
  uint64_t looked_at = 0;  ///< entries
  uint64_t unknown = 0;    ///< entries left alone because another release wrote them, or nobody can read them
  uint64_t selected = 0;
  uint64_t bytes = 0;              ///< of the artefacts of the selected entries
  uint64_t removed = 0;            ///< 0 in a dry run; fewer than selected if entries changed meanwhile
  std::vector<std::string> paths;  ///< the first kPurgePaths of the selected entries
};
inline constexpr size_t kPurgePaths = 20;

/// What a server says of itself (Operators::probe). Immutable value.
struct ServerFacts {
  std::string version{};  ///< empty if the user of a read-only remote may not ask for it
  std::string eviction_policy{};
  uint64_t memory_limit = 0;  ///< bytes; 0: none
  uint64_t memory_used = 0;   ///< bytes
  uint64_t evicted = 0;       ///< keys since the server began; of a cluster, as all figures, the sum of its masters
  /// What an operator should change, one line each; empty when all is well.
  std::vector<std::string> warnings{};
};

/// What concerns the operators of a cluster: its mounts, the orders to them, what is purged, and the server. Calls
/// block and fail as those of a Remote. Safe for concurrent use.
class Operators {
 public:
  virtual ~Operators() = default;

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
  /// Remembers for kMissingLifetime that a mount of this name is there, at most kNodesLimit of them: the oldest go
  /// first. A name is 1 .. kNodeNameLimit bytes, and the same after the host was started again.
  [[nodiscard]] virtual Result<void> remember_node(const std::string& /*name*/, Deadline /*deadline*/) {
    return fail(ErrorCode::kNotSupported);
  }
  /// Forgets it, because it ends as it should: nobody misses it. Best effort.
  virtual void forget_node(const std::string& /*name*/, Deadline /*deadline*/) {}
  /// Lists whom nobody has remembered for `least`, the oldest first, at most kNodesLimit.
  [[nodiscard]] virtual Result<std::vector<MissingNode>> list_missing_nodes(Milliseconds /*least*/,
                                                                            Deadline /*deadline*/) {
    return fail(ErrorCode::kNotSupported);
  }
  [[nodiscard]] virtual Result<OrdersNow> read_orders(Deadline /*deadline*/) { return fail(ErrorCode::kNotSupported); }
  /// Replaces the orders if they still are `before`, and answers false if they are not. They live for two lifetimes of
  /// blobs, which each sweep (Index::sweep) begins anew. kInvalid over kOrdersLimit.
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

  /// Asks the server what it is. kInvalid when it is not Redis, kNotSupported when it is too old (before 7.0).
  [[nodiscard]] virtual Result<ServerFacts> probe(Deadline deadline) = 0;

  struct Health {
    bool reachable = false;
    std::string address;     ///< without secrets
    std::string last_error;  ///< empty when the last call went well
  };
  [[nodiscard]] virtual Health health() const = 0;
};

}  // namespace inductorfs::remote
