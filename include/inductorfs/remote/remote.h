// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "inductorfs/base/counters.h"
#include "inductorfs/base/result.h"
#include "inductorfs/remote/blobs.h"
#include "inductorfs/remote/index.h"
#include "inductorfs/remote/leases.h"
#include "inductorfs/remote/operators.h"
#include "inductorfs/remote/options.h"
#include "inductorfs/remote/statements.h"
#include "inductorfs/remote/write_condition.h"

/// The cluster: blobs by digest, and for each scope an index of entries with a log of changes. This module knows
/// nothing of families or of this host. docs/formats.md has the keys in Redis.
namespace inductorfs::remote {

/// One cluster, by what is wanted of it; the five may be one object. Calls block on the network, up to the deadlines
/// given. Each may answer kUnavailable or kTimedOut, which mean "not now"; while the breaker is open (after failures,
/// with back-off and jitter) all answer at once.
struct Remote {
  std::shared_ptr<Blobs> blobs;
  std::shared_ptr<Index> index;
  std::shared_ptr<Operators> operators;
  std::shared_ptr<Leases> leases;
  std::shared_ptr<Statements> statements;
};

/// Opens a remote on Redis. It does not connect, so a server that is absent now is no error. kInvalid when the URL is
/// not one, or a secret file cannot be read. `counters` must outlive the remote. `writes`, if there is one, is told how
/// the writes end.
[[nodiscard]] Result<Remote> open_redis(const RemoteOptions& options, Counters& counters,
                                        std::shared_ptr<WriteCondition> writes = nullptr);

/// A whole cluster in memory, for a mount without --remote, for unit tests, and as the reference of the contract suite.
/// Handles that share one `MemoryCluster` see each other's changes.
class MemoryCluster;
[[nodiscard]] std::shared_ptr<MemoryCluster> make_memory_cluster();
[[nodiscard]] Remote open_memory(std::shared_ptr<MemoryCluster> cluster);
/// Drops a blob, as a server under memory pressure may at any time.
void evict_blob(MemoryCluster& cluster, const codec::Digest& digest);

}  // namespace inductorfs::remote
