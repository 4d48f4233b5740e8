// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "database.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/catalog/catalog.h"
#include "queue_index.h"
#include "tree.h"
#include "uses.h"

/// What the catalog's two threads and its callers share. Lock order: `durable` and `tree` are never held together, but
/// while the marks are loaded, when there are no threads yet.
namespace inductorfs::catalog {

struct Metrics {
  explicit Metrics(Counters& counters);
  Counter& rejected;
  Counter& entries;
  Counter& resets;
  Counter& damaged;
  Counter& database_errors;
  Counter& lost_reported;
  Counter& lost_dropped;
  Counter& published;
  Counter& kept_local;
  Counter& superseded;  ///< of kept_local: the cluster has another's in the place
  Counter& refused;
  Counter& retries;
  Counter& parked;  ///< of what is queued: groups whose own publish has failed
  Counter& dropped;
  Counter& tail_errors;
  Counter& scopes_forgotten;
  Counter& renewed;  ///< blobs whose use was told to the cluster
};

/// The database and what is kept in memory of its queue; the publish thread waits on it.
struct Durable {
  explicit Durable(Database opened) : database(std::move(opened)) {}

  Database database;
  QueueIndex queue;
  std::optional<int64_t> in_flight;  ///< also while its listeners run
  QueueIndex::Item in_flight_item;   ///< of `in_flight`, although a later group may have taken its place in the queue
  std::deque<PublishReport> undelivered;  ///< of groups that were dropped without the publish thread
  std::deque<Known> lost;                 ///< to be told to the cluster
  std::set<std::string> lost_paths;       ///< of `lost`
  bool reachable_again = false;           ///< the tail got through after errors: no need to wait any longer
  bool queue_is_short = false;            ///< groups that were acknowledged may be missing from it
  size_t drainers = 0;
  uint64_t wakes = 0;  ///< counts reasons for the publish thread to look again
  std::optional<Error> last_error;
};

/// A remote whose calls end soon once `cancelled` says so. Immutable after construction.
class CancellableRemote {
 public:
  CancellableRemote(remote::Remote& remote, std::function<bool()> cancelled)
      : own_(remote.cancellable(std::move(cancelled))), used_(own_ != nullptr ? *own_ : remote) {}
  remote::Remote* operator->() const { return &used_; }

 private:
  std::unique_ptr<remote::Remote> own_;
  remote::Remote& used_;
};

struct Parts {
  Parts(const CatalogOptions& given, remote::Remote& cluster, store::BlobStore& blobs, Catalog::ScopeAccepts accept,
        Counters& counters, Database opened)
      : options(given),
        remote(cluster),
        store(blobs),
        accepts(std::move(accept)),
        metrics(counters),
        tree(given.scopes, given.entry_limit),
        uses(given.renew_interval),
        durable(std::move(opened)) {}

  const CatalogOptions options;
  remote::Remote& remote;
  store::BlobStore& store;
  const Catalog::ScopeAccepts accepts;
  Metrics metrics;
  SharedGuarded<Tree> tree;
  Uses uses;
  Guarded<Durable> durable;
  std::atomic<bool> stopping{false};
  Catalog::ChangeListener on_change;  ///< set before the threads start
  Catalog::PublishListener on_publish;

  /// Whether an entry may be known here at all: its form, and that its path belongs to the scope.
  [[nodiscard]] bool acceptable(const remote::ScopeId& scope, const codec::Entry& entry) const {
    return codec::is_clean_path(entry.path) && entry.path.size() <= codec::kPathLimit &&
           entry.origin.size() <= codec::kOriginLimit && accepts(scope, entry.path);
  }
  /// A change to the database that may fail without harm now: it is repeated, or only costs time after a restart.
  void count_failure(const Result<void>& outcome) {
    if (!outcome) metrics.database_errors.add();
  }
};

}  // namespace inductorfs::catalog
