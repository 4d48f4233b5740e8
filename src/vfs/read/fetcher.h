// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "inductorfs/base/budget.h"
#include "inductorfs/base/counters.h"
#include "inductorfs/base/defaults.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/base/thread.h"
#include "inductorfs/catalog/catalog.h"
#include "inductorfs/remote/blobs.h"
#include "inductorfs/store/blob_store.h"

namespace inductorfs::vfs {

enum class FetchOutcome {
  kHere,    ///< the blob is in the store, verified, and fit for the entry's name
  kLost,    ///< the cluster does not have the blob, or has wrong bytes: the entry is to be reported
  kNotNow,  ///< no answer came in time: a miss, to be asked again
  kAway,    ///< the same, and nobody was asked: the remote rests
  kNoRoom,  ///< the same, for the local disk has no room
  kUnfit,   ///< these are the published bytes, but this host or release cannot use them; they are not in the store
};

/// Says whether the store has the entry's blob. A blob of another size does not count: the kernel would be told a size
/// that the bytes do not have, and would make up zeros or cut them off.
[[nodiscard]] bool is_here(store::BlobStore& store, const codec::Entry& entry);

/// Brings blobs from the cluster into the store. Many lookups of one blob share one fetch, and blobs that are wanted
/// together travel in one pipeline. It owns the `fetch` and `prefetch` threads, and never blocks its callers.
/// Safe for concurrent use.
class Fetcher {
 public:
  /// Checks whether the bytes fit the entry's name and this host (Host::check); called from a fetch thread. `verified`
  /// is all of them, in memory; without it they are in the store. They are the published bytes, so no answer makes them
  /// lost: another host, or a release with another check, may use them. kNotSupported and kCorrupt: they cannot be used
  /// here. Any other error: not now.
  using Check = std::function<Result<void>(const codec::Entry&, std::optional<std::string_view> verified)>;
  /// Receives, on a fetch thread, entries whose bytes only a newer release can read.
  using Newer = std::function<void(const codec::Entry&, const std::string& why)>;
  /// Receives the outcomes of the needed entries, in order. Called once, from a fetch thread or at once.
  using Done = std::function<void(const std::vector<FetchOutcome>&)>;

  /// `total`, `patience`: see FileSystemOptions::fetch_total and lookup_patience.
  struct Hooks {
    Check check;
    Newer newer;
  };
  Fetcher(remote::Blobs& blobs, store::BlobStore& store, Counters& counters, Hooks hooks, size_t threads,
          Milliseconds total, Milliseconds patience = defaults::kLookupPatience);
  ~Fetcher();

  /// Fetches the needed entries. While the remote rests (Blobs::resting) it is not asked: what is not in the store is
  /// kAway at once.
  void fetch(const std::vector<codec::Entry>& needed, Done done);
  /// Returns what fetch() would say of a blob that is in the store, including whether it fits this name. The blob stays
  /// in any case.
  [[nodiscard]] FetchOutcome judge_present(const codec::Entry& entry);
  /// Blobs::resting()
  [[nodiscard]] bool is_resting() const { return remote_->resting(); }
  /// Says whether the store has the blob (is_here()).
  [[nodiscard]] bool has(const codec::Entry& entry) { return is_here(store_, entry); }
  /// Fetches in the background, after everything that is needed; dropped when too much waits already.
  void prefetch(const std::vector<codec::Entry>& wanted);
  /// Ends the fetches that are under way (as kNotNow) and joins the threads. Idempotent.
  void stop();

 private:
  struct Ticket;
  using TicketPointer = std::shared_ptr<Ticket>;
  struct Waiter {
    TicketPointer ticket;
    size_t index;
    codec::Entry entry;
  };
  struct Flight {
    std::vector<Waiter> waiters;
    bool started = false;  ///< false: it still waits in a queue, perhaps behind much that no lookup waits for
  };
  /// The name that an outcome was found for; others may wait for the same blob under other names.
  struct Judged {
    std::string path;      ///< empty: the outcome is for any name
    bool refused = false;  ///< the blob is sound, but does not fit this name
    std::string newer;     ///< why the blob can be used under no name
  };
  /// A blob that is to be read, and what the readings before have said against its bytes.
  struct Wanted {
    codec::Entry entry;
    std::string said{};      ///< by the last of them; empty: it was not read yet
    bool said_alike = true;  ///< by all of them
  };
  using Flights = std::unordered_map<codec::Digest, Flight>;
  class Sink;

  /// `asked` is the moment since when a lookup waits.
  void run(const std::vector<codec::Entry>& entries, SteadyTime asked);
  [[nodiscard]] std::vector<Wanted> read(std::vector<Wanted> wanted, bool is_last, Budget& budget);
  void settle(const codec::Digest& digest, FetchOutcome outcome, const Judged& judged);
  [[nodiscard]] FetchOutcome outcome_for(const codec::Entry& waiting, FetchOutcome outcome, const Judged& judged);
  void submit(WorkerPool& pool, std::vector<codec::Entry> entries);
  void found_corrupt(const codec::Entry& entry, const Error& error);
  std::vector<codec::Entry> take_off(const std::vector<codec::Entry>& entries);

  std::atomic<bool> stopping_ = false;
  const std::shared_ptr<remote::Blobs> remote_;  ///< its calls end when this fetcher stops
  store::BlobStore& store_;
  const Hooks hooks_;
  const Milliseconds total_;
  const Milliseconds patience_;
  Progress heard_;  ///< of all fetches, so that waiting for a thread or a connection costs a lookup no patience
  Counter& fetched_;
  Counter& fetched_bytes_;
  Counter& corrupt_;
  Counter& read_again_;
  Counter& absent_;
  Counter& failed_;
  Counter& unfit_;
  Counter& refused_;
  Counter& late_;
  Histogram& wait_times_;  ///< of lookups that needed bytes of the cluster
  Guarded<Flights> flights_;
  WorkerPool needed_pool_;
  WorkerPool background_pool_;
};

}  // namespace inductorfs::vfs
