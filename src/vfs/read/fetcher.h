// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "inductorfs/base/budget.h"
#include "inductorfs/base/counters.h"
#include "inductorfs/base/defaults.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/base/thread.h"
#include "inductorfs/catalog/catalog.h"
#include "inductorfs/remote/remote.h"
#include "inductorfs/store/blob_store.h"

namespace inductorfs::vfs {

enum class FetchOutcome {
  kHere,    ///< in the store, verified, and fit for the entry's name
  kLost,    ///< the cluster has it not, or what it has is wrong: the entry is to be reported
  kNotNow,  ///< no answer in time: a miss, to be asked again
  kUnfit,   ///< the bytes that were published, and this host, or this release, cannot use them: not in the store
};

/// Whether the store has the entry's blob. One of another size is not: the kernel would be told a size that the bytes
/// have not, and make up zeros or cut them off.
[[nodiscard]] bool is_here(store::BlobStore& store, const codec::Entry& entry);

/// Brings blobs from the cluster into the store: many lookups of one blob share one fetch, and what is wanted together
/// travels in one pipeline. Never blocks its callers. Safe for concurrent use.
class Fetcher {
 public:
  /// Whether the bytes fit the entry's name and this host (Host::check); called from a fetch thread. They are the ones
  /// that were published, so no answer makes them lost: another host, or a release whose check is another, may use
  /// them. kNotSupported and kCorrupt: they cannot be used here. Anything else: not now.
  using Check = std::function<Result<void>(const codec::Entry&)>;
  /// Told, from a fetch thread, of bytes that only a newer release can read.
  using Newer = std::function<void(const codec::Entry&, const std::string& why)>;
  /// The outcomes of what was needed, in order. Called once, from a fetch thread or at once.
  using Done = std::function<void(const std::vector<FetchOutcome>&)>;

  /// `total`, `patience`: see FileSystemOptions::fetch_total and lookup_patience.
  struct Hooks {
    Check check;
    Newer newer;
  };
  Fetcher(remote::Remote& remote, store::BlobStore& store, Counters& counters, Hooks hooks, size_t threads,
          Milliseconds total, Milliseconds patience = defaults::kLookupPatience);
  ~Fetcher();

  /// While the remote rests (Remote::resting) it is not asked: what is not in the store is kNotNow at once.
  void fetch(const std::vector<codec::Entry>& needed, Done done);
  /// What fetch() says of a blob that is in the store: whether it fits this name, too. It stays in any case.
  [[nodiscard]] FetchOutcome judge_present(const codec::Entry& entry);
  /// In the background, after all that is needed; dropped when too much waits already.
  void prefetch(const std::vector<codec::Entry>& wanted);
  /// Ends what is under way (as kNotNow) and joins. Idempotent.
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
    bool started = false;  ///< false: it rests in a queue, perhaps behind much that nobody waits for
  };
  /// For whose name an outcome is; others may wait for the same blob under other names.
  struct Judged {
    std::string path;      ///< empty: for any name
    bool refused = false;  ///< sound, but the name is not one for it
    std::string newer;     ///< why it can be used under no name
  };
  using Flights = std::unordered_map<codec::Digest, Flight>;
  class Sink;

  /// `asked`: since when somebody waits.
  void run(const std::vector<codec::Entry>& entries, SteadyTime asked);
  void settle(const codec::Digest& digest, FetchOutcome outcome, const Judged& judged);
  [[nodiscard]] FetchOutcome outcome_for(const codec::Entry& waiting, FetchOutcome outcome, const Judged& judged);
  void submit(WorkerPool& pool, std::vector<codec::Entry> entries);
  void found_corrupt(const codec::Entry& entry, const Error& error);
  std::vector<codec::Entry> take_off(const std::vector<codec::Entry>& entries);

  std::atomic<bool> stopping_ = false;
  const std::unique_ptr<remote::Remote> own_remote_;  ///< whose calls end when this one stops, if there is such a one
  remote::Remote& remote_;
  store::BlobStore& store_;
  const Hooks hooks_;
  const Milliseconds total_;
  const Milliseconds patience_;
  Progress heard_;  ///< of all fetches: who waits for a thread, or a connection, does not count their time
  Counter& fetched_;
  Counter& fetched_bytes_;
  Counter& corrupt_;
  Counter& absent_;
  Counter& failed_;
  Counter& unfit_;
  Counter& refused_;
  Counter& late_;
  Guarded<Flights> flights_;
  WorkerPool needed_pool_;
  WorkerPool background_pool_;
};

}  // namespace inductorfs::vfs
