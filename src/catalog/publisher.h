// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "catalog/backoff.h"
#include "catalog/parts.h"
#include "catalog/sweeper.h"
#include "catalog/tail.h"

namespace inductorfs::catalog {

/// Both sides of a merge are held in memory.
inline constexpr uint64_t kMergeLimit = 64ULL << 20;

/// Takes the oldest queued group, publishes it by the rule of its kind, and reports how that ended. Between groups it
/// reports lost blobs to the cluster. A group whose own publish fails is parked, and the others go on. run() blocks on
/// the cluster and on the local disk. Confined to the catalog-publish thread, except stop().
class Publisher {
 public:
  Publisher(Parts& parts, const Tail& tail, Sweeper& sweeper)
      : parts_(parts),
        blobs_(parts.blobs.blobs_until([this] { return parts_.stopping.load(); })),
        index_(parts.index.index_until([this] { return parts_.stopping.load(); })),
        tail_(tail),
        sweeper_(sweeper) {}

  /// Runs the catalog-publish thread; returns when parts.stopping is set and stop() was called.
  void run();
  void stop();

 private:
  struct Item {
    int64_t id = 0;
    Publish publish;
    uint64_t attempts = 0;
  };
  /// How the publish of a group ended.
  struct Outcome {
    PublishReport report;
    std::vector<codec::Entry> in_cluster;  ///< the entries that the cluster has now because of this publish
    /// The cluster had the digests of `in_cluster` before, with another host's attributes, which the tail will bring.
    bool held = false;
    /// The group stays on this host because the cluster has another group in its place.
    bool superseded = false;
  };
  /// The work that there is now.
  struct Work {
    std::vector<std::string> returned;
    std::vector<PublishReport> reports;
    std::vector<KnownEntry> lost;
    std::optional<int64_t> id;
    std::string payload;
    uint64_t attempts = 0;
    std::string path;                                    ///< one path of the group
    std::vector<std::pair<int64_t, std::string>> ahead;  ///< ids and payloads of groups that are to be signed with it
    Result<void> readable;
  };

  void tell_damage();
  [[nodiscard]] Work next_work(SteadyTime now);
  void take_item(Durable& durable, Work& work, SteadyTime now);
  /// Takes the groups of the item's scope that one signature can be for, too.
  void take_ahead(Durable& durable, Work& work);
  void wait_for_work(uint64_t seen_wakes);
  void deliver(const std::vector<PublishReport>& reports);

  void publish_one(Work work);
  /// Publishes one group. After an error, or an outcome with PublishState::kQueued, another attempt is made; the latter
  /// comes soon, and is nobody's failure.
  [[nodiscard]] Result<Outcome> attempt(const Item& item);
  /// Signs the group, and with one signature those that follow it in its scope.
  [[nodiscard]] Result<void> sign_with(const Item& item, const std::vector<std::pair<int64_t, std::string>>& ahead);
  [[nodiscard]] Result<void> sign(const remote::ScopeId& scope, const std::vector<codec::Entry>& entries);
  bool show(const Item& item, const Outcome& outcome, std::vector<std::string>& changed);
  void finish(const Item& item, const Outcome& outcome);
  void gather_start(const Publish& publish, const std::string& root);
  void try_later(const Item& item, const Error& error);
  void park(const Item& item, const Error& error);
  /// Puts a group off, because another host is about to publish the same.
  void put_off(const Item& item, const std::string& why);
  void report_lost(const std::vector<KnownEntry>& lost);
  /// Reports blobs that are used here, best effort: if a report is lost, the blobs lose a day of their lifetime.
  void renew_used(SteadyTime now);

  // ---- by kind (publish_kinds.cc)
  /// Of a group that the disk of this host has lost.
  [[nodiscard]] static PublishReport damaged(std::string why);
  [[nodiscard]] std::optional<PublishReport> hopeless(const Publish& publish) const;
  [[nodiscard]] Result<std::optional<Outcome>> without_blob(const Item& item);
  [[nodiscard]] Result<Outcome> publish_plain(const Item& item);
  [[nodiscard]] Result<Outcome> publish_first(const Item& item);
  [[nodiscard]] Result<Outcome> publish_candidate(const Item& item);
  [[nodiscard]] Result<Outcome> contest(const Item& item, uint64_t most);
  /// Says whether the cluster holds exactly what the item would publish, by an earlier attempt whose answer was lost.
  [[nodiscard]] Result<bool> holds_already(const Item& item);
  using Current = std::map<std::string, std::optional<codec::Entry>>;
  /// Reads what the cluster has under these paths, past the tail.
  [[nodiscard]] Result<Current> current(const remote::ScopeId& scope, const std::vector<std::string>& paths,
                                        bool whole);
  struct Sent {
    remote::PublishOutcome outcome;
    std::optional<Outcome> refused;  ///< set when no further attempt could do better
  };
  [[nodiscard]] Result<Sent> send(const remote::PublishGroup& group);
  [[nodiscard]] static Outcome superseded(std::string_view why);
  /// Converts an answer of the cluster that is final for the group.
  [[nodiscard]] static Outcome settled(remote::PublishOutcome outcome, std::vector<codec::Entry> entries);

  // ---- by merging with the cluster's bytes (cache/<system hash>)
  [[nodiscard]] Result<Outcome> publish_merged(const Item& item);
  struct Merge {
    codec::Entry entry;
    bool nothing_new = false;  ///< the cluster's bytes already have everything that ours have
    std::optional<std::string> refused;
  };
  [[nodiscard]] Result<Merge> merge(const codec::Entry& ours, const codec::Entry& theirs);
  [[nodiscard]] Result<std::optional<std::string>> bytes_of(const codec::Digest& digest, bool from_cluster);

  Parts& parts_;
  const std::shared_ptr<remote::Blobs> blobs_;
  const std::shared_ptr<remote::Index> index_;
  const Tail& tail_;
  Sweeper& sweeper_;
  Backoff backoff_;
  Backoff lost_backoff_;
  SteadyTime retry_at_{};
  SteadyTime lost_retry_at_{};
  SteadyTime renew_at_{};
  bool told_damage_ = false;
  std::set<int64_t> signed_;  ///< groups in the queue, signed since the cluster was away
};

/// Returns every path of a group.
[[nodiscard]] std::vector<std::string> paths_of(const Publish& publish);
/// Says whether an error means "not now", whatever is tried: the queue then waits, in order.
[[nodiscard]] bool is_temporary(const Error& error);

}  // namespace inductorfs::catalog
