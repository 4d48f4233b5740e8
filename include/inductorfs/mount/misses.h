// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "inductorfs/config/json_forward.h"
#include "inductorfs/mount/layers.h"

/// Why a program did not find what it asked for: asked of the cluster while the miss is fresh, because the job makes
/// and publishes by itself what it has missed.
namespace inductorfs::mount {

/// What operators have ordered for the cluster, as far as this mount has heard. Both are empty when there is nothing.
struct OrdersHeard {
  std::function<std::string()> why_frozen;
  std::function<std::string(const std::string& path)> purged;  ///< the last purge that selects this canonical path
};

/// Finds out why a miss was one: {"reason", "text", "nearest"}. "reason" is a word of docs/operations/jobs.md, "text"
/// says it in one sentence with what to do, and "nearest" (host::nearest_report) is there where other nodes have the
/// key under other facts. Asks the cluster for its scopes, and which of them have the key. Blocks until the deadline at
/// most.
[[nodiscard]] config::Json explain_miss(const ledger::MissQuestion& miss, Layers& layers, const OrdersHeard& orders,
                                        Deadline deadline);

/// Adds to those misses of a report (ledger::Ledger::misses) that vLLM names by its settings the "other_hash" with the
/// variable that differs (other_hash_report()): this can be said only when this host has compiled. Blocks for about two
/// seconds at most.
void compare_hashes(config::Json& report, Layers& layers);

/// Explains each miss that the ledger asks about, by a thread of its own, `misses`. The layers must outlive it.
/// Confined to the thread that starts and stops it.
class MissExplainer {
 public:
  MissExplainer(Layers& layers, OrdersHeard orders) : layers_(layers), orders_(std::move(orders)) {}
  ~MissExplainer() { stop(); }
  MissExplainer(const MissExplainer&) = delete;
  MissExplainer& operator=(const MissExplainer&) = delete;

  void start();
  /// Ends the thread. Idempotent.
  void stop();

 private:
  Layers& layers_;
  const OrdersHeard orders_;
  std::jthread thread_;
};

}  // namespace inductorfs::mount
