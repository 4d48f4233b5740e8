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

/// What is known of the cluster apart from its artefacts. Each text is empty when there is nothing to say.
struct ClusterState {
  bool has_remote = false;
  std::function<std::string()> why_frozen;
  /// The last purge that selects an artefact with this canonical path and scope, of those that this mount has heard.
  std::function<std::string(const std::string& path, const std::string& scope)> purged;
  std::function<std::string()> why_full;  ///< the server takes nothing more
};

/// Finds out why a miss was one: {"reason", "text", "nearest"}. "reason" is a word of
/// docs/operations/why-a-job-compiled.md, "text" says it in one sentence with what to do, and "nearest"
/// (host::nearest_report) is there where other nodes have the key under other facts. Asks the cluster for its scopes,
/// and which of them have the key. Blocks until the deadline at most.
[[nodiscard]] config::Json explain_miss(const ledger::MissQuestion& miss, Layers& layers, const ClusterState& cluster,
                                        Deadline deadline);

/// Adds to those misses of a report (ledger::Ledger::misses) that vLLM names by its settings the "other_hash" with the
/// variable that differs (other_hash_report()): this can be said only when this host has compiled. Blocks for about two
/// seconds at most.
void compare_hashes(config::Json& report, Layers& layers);

/// Explains each miss that the ledger asks about, by a thread of its own, `misses`. The layers must outlive it.
/// Confined to the thread that starts and stops it.
class MissExplainer {
 public:
  MissExplainer(Layers& layers, ClusterState cluster) : layers_(layers), cluster_(std::move(cluster)) {}
  ~MissExplainer() { stop(); }
  MissExplainer(const MissExplainer&) = delete;
  MissExplainer& operator=(const MissExplainer&) = delete;

  void start();
  /// Ends the thread. Idempotent.
  void stop();

 private:
  Layers& layers_;
  const ClusterState cluster_;
  std::jthread thread_;
};

}  // namespace inductorfs::mount
