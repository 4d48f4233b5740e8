// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "catalog/database/database.h"
#include "catalog/database/queue_index.h"
#include "catalog/tree/entry_tree.h"
#include "catalog/uses.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/catalog/catalog.h"

/// The state that the catalog's threads and its callers share. Lock order: `durable` and `tree` are never held
/// together, except while the marks are loaded, when there are no threads yet.
namespace inductorfs::catalog {

struct Metrics {
  Counters& counters;
  Counter& rejected = counters.get("catalog.rejected");
  Counter& entries = counters.get("catalog.entries");
  Counter& resets = counters.get("catalog.resets");
  Counter& damaged = counters.get("catalog.damaged");
  Counter& damaged_rows = counters.get("catalog.damaged_rows");
  Counter& database_errors = counters.get("catalog.database_errors");
  Counter& lost_reported = counters.get("catalog.lost_reported");
  Counter& lost_dropped = counters.get("catalog.lost_dropped");
  Counter& published = counters.get("publish.published");
  Counter& kept_local = counters.get("publish.kept_local");
  Counter& superseded =
      counters.get("publish.superseded");  ///< those of kept_local in whose place the cluster has another group
  Counter& refused = counters.get("publish.refused");
  Counter& lost_groups = counters.get("publish.damaged");  ///< what the disk of this host kept of them was damaged
  Counter& retries = counters.get("publish.retries");
  Counter& parked = counters.get("publish.parked");  ///< queued groups whose own publish has failed
  Counter& dropped = counters.get("publish.dropped");
  Counter& tail_errors = counters.get("tail.errors");
  Counter& scopes_forgotten = counters.get("catalog.scopes_forgotten");
  Histogram& publish_times =
      counters.histogram("publish");  ///< from queued, which a file is once it is sealed, to acknowledged
  Counter& renewed = counters.get("catalog.renewed");  ///< blobs whose use was reported to the cluster
};

/// The database and the part of its queue that is kept in memory. The publish thread waits on it.
struct Durable {
  explicit Durable(Database opened) : database(std::move(opened)) {}

  Database database;
  QueueIndex queue;
  std::optional<int64_t> in_flight;  ///< the group that is being published, also while its listeners run
  QueueIndex::Item in_flight_item;   ///< of `in_flight`, although a later group may have taken its place in the queue
  std::deque<PublishReport> undelivered;  ///< of groups that were dropped without the publish thread
  std::deque<KnownEntry> lost;            ///< entries that are still to be reported as lost
  std::set<std::string> lost_paths;       ///< the paths of `lost`
  std::vector<std::string> returned;      ///< was deleted and is shown again, and the listener is still to be told
  bool reachable_again = false;  ///< the tail got through after errors, so that the queue need not wait any longer
  bool queue_is_short = false;   ///< groups that were acknowledged may be missing from the queue
  size_t drainers = 0;
  uint64_t wakes = 0;  ///< counts reasons for the publish thread to look again
  std::optional<Error> last_error;

  uint64_t awaited = 0;      ///< how often note_awaited() was called
  bool awaits_echo = false;  ///< the queue counts as short for that alone

  /// Takes a group out of the queue that no publish has taken. The publish thread tells of it.
  void keep_local(int64_t id, std::string_view why) {
    PublishReport report{queue.find(id)->paths, PublishState::kKeptLocal, std::string(why), std::nullopt};
    queue.remove(id);
    queue.record(report);
    undelivered.push_back(std::move(report));
    if (undelivered.size() > QueueIndex::kReportLimit) undelivered.pop_front();
    ++wakes;
  }
  /// What was published is not read back yet: whoever is killed now leaves it to the next worker to look.
  [[nodiscard]] Result<void> note_awaited() {
    ++awaited;
    if (queue_is_short) return {};
    auto noted = note_queue(false);
    awaits_echo = true;
    return noted;
  }
  /// All of it is, unless note_awaited() was called since `awaited` was `seen`.
  [[nodiscard]] Result<void> note_read_back(uint64_t seen) {
    return awaits_echo && awaited == seen ? note_queue(true) : Result<void>{};
  }
  /// Catalog::note_queue()
  [[nodiscard]] Result<void> note_queue(bool whole) {
    awaits_echo = false;
    if (queue_is_short == !whole) return {};
    queue_is_short = !whole;
    return database.note_queue(whole);
  }
};

struct Parts {
  Parts(const CatalogOptions& given, remote::Blobs& of_cluster, remote::Index& entries, store::BlobStore& of_host,
        Catalog::ScopeAccepts accept, Counters& counters, Database opened)
      : options(given),
        blobs(of_cluster),
        index(entries),
        store(of_host),
        accepts(std::move(accept)),
        metrics{counters},
        tree(given.scopes, given.entry_limit),
        uses(given.renew_interval),
        durable(std::move(opened)) {
    if (given.is_resumed) tree.write([](EntryTree& resumed) { resumed.note_times(); });
  }

  const CatalogOptions options;
  remote::Blobs& blobs;
  remote::Index& index;
  store::BlobStore& store;
  const Catalog::ScopeAccepts accepts;
  Metrics metrics;
  SharedGuarded<EntryTree> tree;
  Uses uses;
  Guarded<Durable> durable;
  std::atomic<bool> stopping{false};
  std::atomic<bool> frozen{false};
  std::atomic<bool> damaged{false};  ///< the database, see note_failure()
  std::atomic<SteadyTime> permitted_until{SteadyTime::min()};
  Catalog::ChangeListener on_change;  ///< set before the threads start
  Catalog::PublishListener on_publish;
  std::function<void()> on_damage;

  [[nodiscard]] bool may_publish(SteadyTime now) const {
    return !frozen && (!options.awaits_permission || now < permitted_until.load());
  }
  /// Says whether an entry may be known here at all: its form is right, and its path belongs to the scope.
  [[nodiscard]] bool acceptable(const remote::ScopeId& scope, const codec::Entry& entry) const {
    return codec::is_clean_path(entry.path) && entry.path.size() <= codec::kPathLimit &&
           entry.origin.size() <= codec::kOriginLimit && accepts(scope, entry.path);
  }
  /// Counts the failure of a database change that does no harm now: it is repeated, or only costs time after a restart.
  void count_failure(const Result<void>& outcome) {
    if (!outcome) note_failure(outcome.error());
  }
  /// Also notes a database that is damaged: durably, for the next open(), and for the publish thread, which tells.
  void note_failure(const Error& error);
  void count_entries() {
    metrics.entries.set(tree.read([](const EntryTree& known) { return known.known(); }));
  }
  /// Tells the listener which paths changed, and forgets them.
  void tell(std::vector<std::string>& changed) {
    if (!changed.empty() && on_change) on_change(changed);
    changed.clear();
  }
  /// Catalog::hide() has an end, on the disk.
  void forget_marks(const std::vector<HiddenMark>& marks);
};

}  // namespace inductorfs::catalog
