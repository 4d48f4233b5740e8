// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backoff.h"
#include "parts.h"
#include "sweeper.h"
#include "tail.h"

namespace inductorfs::catalog {

/// Takes the oldest queued group, publishes it by the rule of its kind, and tells how that ended; between groups it
/// tells the cluster of lost blobs. A group whose own publish fails is parked, and the others go on. Confined to the
/// catalog-publish thread, except stop().
class Publisher {
 public:
  Publisher(Parts& parts, const Tail& tail, Sweeper& sweeper)
      : parts_(parts),
        remote_(parts.remote, [this] { return parts_.stopping.load(); }),
        tail_(tail),
        sweeper_(sweeper) {}

  /// The catalog-publish thread; returns when parts.stopping is set and stop() was called.
  void run();
  void stop();

 private:
  struct Item {
    int64_t id = 0;
    Publish publish;
    uint64_t attempts = 0;
  };
  /// How a group ended.
  struct Outcome {
    PublishReport report;
    std::vector<codec::Entry> in_cluster;  ///< what the cluster has now by our doing
    /// The cluster had the digests of `in_cluster` before, with another host's attributes, which the tail will bring.
    bool held = false;
    /// Kept on this host because the cluster has another's in its place.
    bool superseded = false;
  };
  /// What there is to do now.
  struct Work {
    std::vector<PublishReport> reports;
    std::vector<Known> lost;
    std::optional<int64_t> id;
    std::string payload;
    uint64_t attempts = 0;
    std::string path;  ///< one of the group's
    Result<void> readable;
  };

  [[nodiscard]] Work next_work(SteadyTime now);
  void take_item(Durable& durable, Work& work, SteadyTime now);
  void wait_for_work(uint64_t seen_wakes);
  void deliver(const std::vector<PublishReport>& reports);

  void publish_one(Work work);
  /// An error is worth another attempt. PublishState::kQueued: so is this outcome, soon, which is nobody's fault.
  [[nodiscard]] Result<Outcome> attempt(const Item& item);
  void finish(const Item& item, const Outcome& outcome);
  void try_later(const Item& item, const Error& error);
  void park(const Item& item, const Error& error);
  /// Another host is about to publish what the item has.
  void put_off(const Item& item, const std::string& why);
  void report_lost(const std::vector<Known>& lost);
  /// Tells the cluster of blobs that are used here. Best effort: what is lost with it is a day of their lifetime.
  void renew_used(SteadyTime now);

  // ---- by kind (publish_kinds.cc)
  [[nodiscard]] std::optional<PublishReport> hopeless(const Publish& publish) const;
  [[nodiscard]] Result<Outcome> publish_plain(const Item& item);
  [[nodiscard]] Result<Outcome> publish_first(const Item& item);
  [[nodiscard]] Result<Outcome> publish_candidate(const Item& item);
  [[nodiscard]] Result<Outcome> contest(const Item& item, uint64_t most);
  /// Whether the cluster holds exactly what the item would publish: an earlier attempt whose answer was lost.
  [[nodiscard]] Result<bool> holds_already(const Item& item);
  using Current = std::map<std::string, std::optional<codec::Entry>>;
  /// What the cluster has under these paths, read past the tail.
  [[nodiscard]] Result<Current> current(const remote::ScopeId& scope, const std::vector<std::string>& paths,
                                        bool whole);
  struct Sent {
    remote::PublishOutcome outcome;
    std::optional<Outcome> refused;  ///< set when no further attempt could do better
  };
  [[nodiscard]] Result<Sent> send(const remote::PublishGroup& group);
  [[nodiscard]] static Outcome superseded(std::string_view why);
  /// What an answer of the cluster that no further question can change means for the group.
  [[nodiscard]] static Outcome settled(remote::PublishOutcome outcome, std::vector<codec::Entry> entries);

  // ---- merge (merge.cc)
  [[nodiscard]] Result<Outcome> publish_merged(const Item& item);
  struct Merge {
    codec::Entry entry;
    bool nothing_new = false;  ///< the cluster's bytes have all of ours already
    std::optional<std::string> refused;
  };
  [[nodiscard]] Result<Merge> merge(const codec::Entry& ours, const codec::Entry& theirs);
  [[nodiscard]] Result<std::optional<std::string>> bytes_of(const codec::Digest& digest, bool from_cluster);

  Parts& parts_;
  CancellableRemote remote_;
  const Tail& tail_;
  Sweeper& sweeper_;
  Backoff backoff_;
  Backoff lost_backoff_;
  SteadyTime retry_at_{};
  SteadyTime lost_retry_at_{};
  SteadyTime renew_at_{};
};

/// Every path of a group.
[[nodiscard]] std::vector<std::string> paths_of(const Publish& publish);
/// Errors that mean "not now", whatever is tried: the queue waits, in order.
[[nodiscard]] bool is_temporary(const Error& error);

}  // namespace inductorfs::catalog
