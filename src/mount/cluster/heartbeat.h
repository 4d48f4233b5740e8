// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "inductorfs/base/guarded.h"
#include "inductorfs/config/json_forward.h"
#include "inductorfs/config/settings.h"
#include "inductorfs/mount/layers.h"
#include "mount/cluster/orders.h"

namespace inductorfs::mount {

/// Tells the cluster every few seconds that this mount is there (`inductorfs nodes`), and obeys what an operator has
/// ordered for all mounts (`inductorfs freeze`, `inductorfs purge`). The answer to a heartbeat has the orders, so that
/// they cost no command of their own. While no answer comes, the queue is not published: an order may have come that
/// concerns what is in it.
///
/// It owns the thread `heartbeat`, which waits for Redis (kPatience), for the store's disk, and for a full Notifier.
/// The layers must outlive it. Safe for concurrent use.
class Heartbeat {
 public:
  /// A freeze reaches each mount within the longest pause and two round trips.
  static constexpr Milliseconds kInterval{5'000};
  static constexpr Milliseconds kPatience{2'000};
  /// A record that has not changed is sent again after it; remote::kNodeLifetime outlives two that were lost.
  static constexpr Milliseconds kRecordInterval{25'000};
  /// How long after an answer the queue may be published.
  static constexpr Milliseconds kPermission{20'000};

  Heartbeat(const config::Settings& settings, Layers& layers);
  ~Heartbeat() { stop(); }
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  void start();
  /// Ends the thread. Idempotent.
  void stop();
  /// Removes this mount's record from the cluster, because the mount ends; after stop().
  void leave();

  /// What `status` shows.
  [[nodiscard]] config::Json status() const;
  /// frozen_text() of what is in force here; empty when nothing is.
  [[nodiscard]] std::string why_frozen() const;
  /// Names the last purge, of those heard, that selects an artefact of this canonical path and scope; empty when none
  /// does.
  [[nodiscard]] std::string purged(const std::string& path, const std::string& scope) const;
  /// Returns the record as the next heartbeat sends it.
  [[nodiscard]] std::string record() const;

 private:
  struct State {
    HeardOrders heard;
    std::vector<PurgeOrder> purges{};  ///< as the cluster has them, by id
    std::string not_listed = "no heartbeat was answered yet";
    std::string not_heard{};  ///< why no orders can be read, although the server answers
  };
  enum class Next { kSoon, kUsual, kRetry };

  void run();
  [[nodiscard]] Next beat();
  void have_remembered(SteadyTime now);
  void note_listed(const std::string& why_not);
  void note_refused(const Error& error);
  /// Returns false when something is left to be done.
  [[nodiscard]] bool obey(const std::string& text, bool& news);
  void obey_freeze(const FreezeOrder& order);
  [[nodiscard]] bool obey_purge(int64_t id, const layout::Selection& selection);
  void remember(const std::function<void(HeardOrders&)>& change);
  [[nodiscard]] bool pause(Milliseconds time);

  const config::Settings& settings_;
  Layers& layers_;
  const std::string id_;
  const std::string name_;  ///< mount::node_name()
  const std::time_t started_;
  const std::string cluster_;  ///< cluster_id()
  std::string sent_;           ///< the record that was sent last; confined to the thread, as the next
  SteadyTime sent_at_{};
  SteadyTime remembered_at_{};
  Guarded<State> state_;
  Guarded<bool> stopping_{false};
  std::jthread thread_;
};

}  // namespace inductorfs::mount
