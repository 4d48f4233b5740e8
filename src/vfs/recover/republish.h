// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stop_token>
#include <string>

#include "vfs/origin/marks.h"
#include "vfs/tree/context.h"
#include "vfs/write/seal_queue.h"
#include "vfs/write/sealing.h"

namespace inductorfs::vfs {

/// Queues again what this host has made and the cluster has acknowledged and lost (catalog::Catalog::lost_tails): each
/// sealed file of a shared family that the index lacks. Nothing is lost here meanwhile, and what the cluster has after
/// all is only looked at. What a worker leaves of it, the next one does in its FollowUp, or its Recovery. run() blocks
/// on the local disk and is confined to the `janitor` thread; the rest is safe for concurrent use.
class Republish : Context {
 public:
  explicit Republish(const Context& context) : Context(context) {}

  /// Does it where it is due and the index is known again; a little later than others that noticed at the same time.
  void run_if_due(const std::stop_token& stop);
  /// Waits until nothing is due that this worker knows of; false at the deadline.
  [[nodiscard]] bool wait(Deadline deadline);

 private:
  void look_below(const std::string& path, const std::stop_token& stop);
  void look_at(const std::string& directory, const LocalTree::Item& item, const std::stop_token& stop);
  /// Of this host, in a scope, and not in the index.
  [[nodiscard]] bool is_lost(const std::string& path) const;
  void queue(const std::string& path, const std::stop_token& stop);

  Guarded<uint64_t> done_{0};  ///< of Catalog::lost_tails()
  uint64_t queued_ = 0;        ///< confined to the janitor
};

}  // namespace inductorfs::vfs
