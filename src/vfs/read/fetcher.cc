// SPDX-License-Identifier: Apache-2.0
#include "vfs/read/fetcher.h"

#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "inductorfs/base/log.h"
#include "inductorfs/codec/frame.h"

namespace inductorfs::vfs {
namespace {

constexpr size_t kNeededQueue = 4096;
constexpr size_t kBackgroundQueue = 256;
/// While one waits for the network, the other inflates and hashes.
constexpr size_t kBackgroundThreads = 2;
constexpr size_t kBatchEntries = 128;
constexpr uint64_t kBatchBytes = 32ULL << 20;
/// So many say the same of bytes before they are called damaged or a newer release's: what differs from one to the next
/// is the link's. The bits that tell a newer release are some thirty, and any two flips of one of them are alike.
constexpr int kReadings = 3;

/// What goes wrong on this host's disk says nothing about the entry, whatever the file system calls it: others may have
/// room for it, and a disk that works.
Result<void> own_fault(Result<void> outcome) {
  if (outcome) return outcome;
  const ErrorCode code = outcome.error().code();
  const bool of_disk = code == ErrorCode::kNoSpace || code == ErrorCode::kReadOnly || code == ErrorCode::kNotPermitted;
  return fail(of_disk ? code : ErrorCode::kUnavailable, outcome.error().what());
}

/// Of a check: these bytes cannot be used here.
bool is_unfit(const Error& error) {
  return error.code() == ErrorCode::kNotSupported || error.code() == ErrorCode::kCorrupt;
}

uint64_t nanoseconds_since(SteadyTime then) {
  const auto passed = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - then);
  return static_cast<uint64_t>(passed.count());
}

}  // namespace

bool is_here(store::BlobStore& store, const codec::Entry& entry) {
  const auto blob = store.find(entry.digest);
  return blob && blob->size == entry.size;
}

struct Fetcher::Ticket {
  struct Outcomes {
    std::vector<FetchOutcome> outcomes;
    size_t open = 0;
  };
  Ticket(size_t count, Done finished, Histogram& times) : done(std::move(finished)), wait_times(times) {
    outcomes_of.with([&](Outcomes& now) {
      now.outcomes.assign(count, FetchOutcome::kNotNow);
      now.open = count;
    });
  }
  void settle(size_t index, FetchOutcome outcome) {
    const bool last = outcomes_of.with([&](Outcomes& now) {
      now.outcomes[index] = outcome;
      return --now.open == 0;
    });
    if (last && waits) wait_times.observe(nanoseconds_since(asked));
    if (last) done(outcomes_of.with([](Outcomes& now) { return now.outcomes; }));
  }
  Guarded<Outcomes> outcomes_of;
  const Done done;
  Histogram& wait_times;
  const SteadyTime asked = std::chrono::steady_clock::now();
  std::atomic<bool> waits = false;  ///< for the cluster; set before the flight that it waits for can land
};

/// Decodes frames into the store as they come, and settles each blob as soon as it is whole.
class Fetcher::Sink final : public remote::BlobSink {
 public:
  Sink(Fetcher& fetcher, std::vector<Wanted> wanted, bool is_last) : fetcher_(fetcher), is_last_(is_last) {
    for (auto& one : wanted) {
      const codec::Digest digest = one.entry.digest;
      static_cast<Wanted&>(blobs_[digest]) = std::move(one);
    }
  }

  Result<void> piece(const codec::Digest& digest, std::string_view frame_piece) override {
    const auto found = blobs_.find(digest);
    if (found == blobs_.end()) return fail(ErrorCode::kInternal, "a blob that nobody asked for");
    Blob& blob = found->second;
    if (!blob.writer) {
      auto writer = fetcher_.store_.create(blob.entry.size, store::Verifier::kCaller);
      if (!writer) return own_fault(fail(std::move(writer).error()));
      blob.writer = std::move(*writer);
      blob.came = std::make_shared<Came>();
      const bool is_small = blob.entry.size <= store::BlobFile::kPackedMost;
      const auto take = [is_small, came = blob.came, &writer = *blob.writer](std::string_view bytes) {
        came->size += bytes.size();
        if (is_small && came->size <= store::BlobFile::kPackedMost) came->bytes.append(bytes);
        return own_fault(writer.append(bytes));
      };
      blob.decoder.emplace(digest, blob.entry.size, take);
    }
    auto fed = blob.decoder->feed(frame_piece);
    fetcher_.heard_.note();  // work of this host, too: a slow disk is not the server's silence
    return fed;
  }

  void done(const codec::Digest& digest, Result<void> outcome) override {
    const auto found = blobs_.find(digest);
    if (found == blobs_.end()) return;
    Blob blob = std::move(found->second);
    blobs_.erase(found);
    if (outcome) {
      outcome = finish(blob);
      fetcher_.heard_.note();
    }
    if (is_doubtful(blob, outcome)) {
      std::string said = outcome.error().to_string();
      blob.said_alike = blob.said_alike && (blob.said.empty() || blob.said == said);
      blob.said = std::move(said);
      if (!is_last_) return doubtful_.push_back(std::move(blob));
      if (!blob.said_alike) outcome = fail(ErrorCode::kUnavailable, "each reading damages it: " + blob.said);
    }
    // Before this host has looked at the bytes itself, there is one who can say so: the decoder, or the remote.
    const bool newer = !outcome && !blob.refused && outcome.error().code() == ErrorCode::kNotSupported;
    if (newer) return settle_newer(blob, outcome.error());
    const FetchOutcome judged = judge(blob, outcome);
    fetcher_.settle(digest, judged, {blob.entry.path, blob.refused, {}});
  }

  /// For the digests that the remote, against its contract, never answered.
  void settle_rest() {
    for (const auto& [digest, blob] : std::exchange(blobs_, {})) fetcher_.settle(digest, FetchOutcome::kNotNow, {});
  }

  /// Returns what is not settled and has to be read once more.
  [[nodiscard]] std::vector<Wanted> take_doubtful() { return std::exchange(doubtful_, {}); }

 private:
  /// What the decoder has given so far.
  struct Came {
    uint64_t size = 0;
    std::string bytes;  ///< of a small blob, so that nobody reads back what was just written
  };
  struct Blob : Wanted {
    std::unique_ptr<store::BlobWriter> writer;
    std::optional<codec::FrameDecoder> decoder;
    std::shared_ptr<Came> came;
    bool unfit = false;
    bool refused = false;
  };

  /// Whether it may be a bit that flipped on the way. One reading must not take an entry away from the whole cluster,
  /// nor hide it on this host for good.
  static bool is_doubtful(const Blob& blob, const Result<void>& outcome) {
    if (outcome || blob.refused) return false;
    const ErrorCode code = outcome.error().code();
    return code == ErrorCode::kCorrupt || code == ErrorCode::kTooLarge || code == ErrorCode::kNotSupported;
  }

  void settle_newer(const Blob& blob, const Error& error) {
    fetcher_.unfit_.add();
    fetcher_.hooks_.newer(blob.entry, error.to_string());
    fetcher_.settle(blob.entry.digest, FetchOutcome::kUnfit, {blob.entry.path, false, error.to_string()});
  }

  Result<void> finish(Blob& blob) {
    if (!blob.decoder) return fail(ErrorCode::kCorrupt, "an empty frame");
    INDUCTORFS_TRY(blob.decoder->finish());  // verifies the digest
    const Came& came = *blob.came;
    if (came.size != blob.entry.size) return fail(ErrorCode::kCorrupt, "the entry says another size");
    INDUCTORFS_TRY(own_fault(blob.writer->commit(blob.entry.digest)));
    const bool is_held = came.bytes.size() == came.size;
    if (auto fits =
            fetcher_.hooks_.check(blob.entry, is_held ? std::optional<std::string_view>(came.bytes) : std::nullopt);
        !fits) {
      fetcher_.store_.drop(blob.entry.digest);
      blob.refused = true;
      blob.unfit = is_unfit(fits.error());
      return blob.unfit ? fits : own_fault(fits);
    }
    return {};
  }

  FetchOutcome judge(const Blob& blob, const Result<void>& outcome) {
    if (outcome) {
      fetcher_.fetched_.add();
      fetcher_.fetched_bytes_.add(blob.entry.size);
      return FetchOutcome::kHere;
    }
    if (blob.unfit) {
      fetcher_.unfit_.add();
      return FetchOutcome::kUnfit;
    }
    const ErrorCode code = outcome.error().code();
    if (code == ErrorCode::kNotFound) {
      fetcher_.absent_.add();
      return FetchOutcome::kLost;
    }
    if (code == ErrorCode::kCorrupt || code == ErrorCode::kTooLarge) {
      fetcher_.found_corrupt(blob.entry, outcome.error());
      return FetchOutcome::kLost;
    }
    fetcher_.failed_.add();
    log::write_limited(log::Level::kWarning, "fetch.failed",
                       {{"path", blob.entry.path}, {"error", outcome.error().to_string()}});
    return code == ErrorCode::kNoSpace ? FetchOutcome::kNoRoom : FetchOutcome::kNotNow;
  }

  Fetcher& fetcher_;
  const bool is_last_;
  std::map<codec::Digest, Blob> blobs_;
  std::vector<Wanted> doubtful_;
};

Fetcher::Fetcher(remote::Blobs& blobs, store::BlobStore& store, Counters& counters, Hooks hooks, size_t threads,
                 Milliseconds total, Milliseconds patience)
    : remote_(blobs.blobs_until([this] { return stopping_.load(); })),
      store_(store),
      hooks_(std::move(hooks)),
      total_(total),
      patience_(patience),
      fetched_(counters.get("fetch.blobs")),
      fetched_bytes_(counters.get("fetch.bytes")),
      corrupt_(counters.get("fetch.corrupt")),
      read_again_(counters.get("fetch.read_again")),
      absent_(counters.get("fetch.absent")),
      failed_(counters.get("fetch.failed")),
      unfit_(counters.get("fetch.not_for_this_host")),
      refused_(counters.get("fetch.refused")),
      late_(counters.get("fetch.late")),
      wait_times_(counters.histogram("lookup.wait")),
      needed_pool_("fetch", threads, kNeededQueue),
      background_pool_("prefetch", kBackgroundThreads, kBackgroundQueue) {}

Fetcher::~Fetcher() { stop(); }

void Fetcher::stop() {
  stopping_ = true;
  background_pool_.stop();
  needed_pool_.stop();
}

void Fetcher::found_corrupt(const codec::Entry& entry, const Error& error) {
  corrupt_.add();
  log::write_limited(log::Level::kError, "fetch.corrupt",
                     {{"path", entry.path},
                      {"digest", entry.digest.to_hex()},
                      {"origin", entry.origin},
                      {"error", error.to_string()}});
}

FetchOutcome Fetcher::judge_present(const codec::Entry& entry) {
  const Result<void> fits = hooks_.check(entry, std::nullopt);
  if (fits) return FetchOutcome::kHere;
  if (!is_unfit(fits.error())) return FetchOutcome::kNotNow;  // evicted, or the disk's error
  unfit_.add();
  return FetchOutcome::kUnfit;
}

void Fetcher::fetch(const std::vector<codec::Entry>& needed, Done done) {
  if (needed.empty()) return done({});
  const auto ticket = std::make_shared<Ticket>(needed.size(), std::move(done), wait_times_);
  const bool resting = remote_->resting();
  std::vector<codec::Entry> missing;
  std::vector<std::pair<size_t, FetchOutcome>> known;
  for (size_t i = 0; i < needed.size(); ++i) {
    if (is_here(store_, needed[i])) {
      known.emplace_back(i, judge_present(needed[i]));
      continue;
    }
    if (resting) {
      refused_.add();
      known.emplace_back(i, FetchOutcome::kAway);
      continue;
    }
    ticket->waits = true;
    flights_.with([&](Flights& flights) {
      Flight& flight = flights[needed[i].digest];
      flight.waiters.push_back({ticket, i, needed[i]});
      if (!flight.started) missing.push_back(needed[i]);  // it overtakes what was only prefetched
    });
  }
  if (!missing.empty()) submit(needed_pool_, std::move(missing));
  for (const auto& [index, outcome] : known) ticket->settle(index, outcome);
}

void Fetcher::prefetch(const std::vector<codec::Entry>& wanted) {
  if (remote_->resting()) return;
  std::vector<codec::Entry> batch;
  uint64_t bytes = 0;
  const auto flush = [&] {
    if (!batch.empty()) submit(background_pool_, std::exchange(batch, {}));
    bytes = 0;
  };
  for (const auto& entry : wanted) {
    if (store_.find(entry.digest)) continue;
    const bool first = flights_.with([&](Flights& flights) { return flights.try_emplace(entry.digest).second; });
    if (!first) continue;
    batch.push_back(entry);
    bytes += entry.size;
    if (batch.size() >= kBatchEntries || bytes >= kBatchBytes) flush();
  }
  flush();
}

void Fetcher::submit(WorkerPool& pool, std::vector<codec::Entry> entries) {
  const auto shared = std::make_shared<const std::vector<codec::Entry>>(std::move(entries));
  const bool waited_for = &pool == &needed_pool_;
  const SteadyTime asked = std::chrono::steady_clock::now();
  if (pool.submit(
          [this, shared, waited_for, asked] { run(*shared, waited_for ? asked : std::chrono::steady_clock::now()); })) {
    return;
  }
  for (const auto& entry : *shared) settle(entry.digest, FetchOutcome::kNotNow, {});
}

std::vector<codec::Entry> Fetcher::take_off(const std::vector<codec::Entry>& entries) {
  return flights_.with([&](Flights& flights) {
    std::vector<codec::Entry> mine;
    for (const auto& entry : entries) {
      const auto found = flights.find(entry.digest);
      if (found == flights.end() || found->second.started) continue;
      found->second.started = true;
      mine.push_back(entry);
    }
    return mine;
  });
}

void Fetcher::run(const std::vector<codec::Entry>& entries, SteadyTime asked) {
  std::vector<Wanted> wanted;
  for (auto& entry : take_off(entries)) {
    if (!is_here(store_, entry)) {
      wanted.push_back({std::move(entry)});
      continue;
    }
    // It landed after the look into the store, which is not made under the lock: that disk may not answer.
    const FetchOutcome judged = judge_present(entry);
    settle(entry.digest, judged, {entry.path, judged != FetchOutcome::kHere, {}});
  }
  if (wanted.empty()) return;
  Budget budget(Deadline(asked + total_), patience_, asked, &heard_);
  budget.take_turn();
  if (budget.end().passed()) late_.add(wanted.size());
  for (int readings = 1; readings <= kReadings && !wanted.empty(); ++readings) {
    if (readings > 1) read_again_.add(wanted.size());
    wanted = read(std::move(wanted), readings == kReadings, budget);
  }
}

/// Settles all but what it returns, which the last reading has none of.
std::vector<Fetcher::Wanted> Fetcher::read(std::vector<Wanted> wanted, bool is_last, Budget& budget) {
  std::vector<codec::Digest> digests;
  digests.reserve(wanted.size());
  for (const auto& one : wanted) digests.push_back(one.entry.digest);
  Sink sink(*this, std::move(wanted), is_last);
  if (!stopping_ && !budget.end().passed()) remote_->fetch_within(digests, sink, budget);
  sink.settle_rest();
  return sink.take_doubtful();
}

FetchOutcome Fetcher::outcome_for(const codec::Entry& waiting, FetchOutcome outcome, const Judged& judged) {
  if (judged.path.empty() || judged.path == waiting.path) return outcome;
  if (!judged.newer.empty()) {
    hooks_.newer(waiting, judged.newer);
    return outcome;
  }
  if (outcome == FetchOutcome::kHere) return judge_present(waiting);
  return judged.refused ? FetchOutcome::kNotNow : outcome;
}

void Fetcher::settle(const codec::Digest& digest, FetchOutcome outcome, const Judged& judged) {
  const auto waiters = flights_.with([&](Flights& flights) {
    std::vector<Waiter> taken;
    if (const auto found = flights.find(digest); found != flights.end()) {
      taken = std::move(found->second.waiters);
      flights.erase(found);
    }
    return taken;
  });
  for (const auto& waiter : waiters) waiter.ticket->settle(waiter.index, outcome_for(waiter.entry, outcome, judged));
}

}  // namespace inductorfs::vfs
