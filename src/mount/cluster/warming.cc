// SPDX-License-Identifier: Apache-2.0
#include "mount/cluster/warming.h"

#include <algorithm>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "inductorfs/base/budget.h"
#include "inductorfs/base/disk_space.h"
#include "inductorfs/base/log.h"
#include "inductorfs/codec/frame.h"
#include "inductorfs/config/json.h"
#include "inductorfs/config/paths.h"
#include "inductorfs/config/text.h"
#include "inductorfs/host/usable_scopes.h"
#include "inductorfs/layout/glob.h"

namespace inductorfs::mount {

using config::Json;

namespace {

constexpr Milliseconds kAskPatience{5000};
/// Between two tries while the remote is away.
constexpr Milliseconds kRest{200};
/// What is fetched together: about what is in flight on a connection, so that the progress is seen.
constexpr uint64_t kBatchBytes = 8ULL << 20;
constexpr size_t kBatchBlobs = 128;
/// Looks into the store between two looks at the clock.
constexpr size_t kLooks = 256;
constexpr size_t kShownReasons = 8;

const layout::Rule* shared_family(std::string_view name) {
  for (const layout::Rule& rule : layout::all_rules()) {
    if (rule.name == name && rule.shared) return &rule;
  }
  return nullptr;
}

bool is_temporary(const Error& error) {
  return error.code() == ErrorCode::kUnavailable || error.code() == ErrorCode::kTimedOut ||
         error.code() == ErrorCode::kBusy;
}

/// An error of this host's disk, whatever it is, is not the blob's.
Result<void> of_disk(Result<void> outcome) {
  if (outcome) return outcome;
  const bool full = outcome.error().code() == ErrorCode::kNoSpace || outcome.error().code() == ErrorCode::kTooLarge;
  return fail(full ? ErrorCode::kNoSpace : ErrorCode::kReadOnly, outcome.error().what());
}

std::string why_failed(const Error& error) {
  if (error.code() == ErrorCode::kNotFound) return "the cluster has lost the bytes";
  if (error.code() == ErrorCode::kNotSupported) return "only a newer inductorfs can read the bytes";
  return "the bytes in the cluster are damaged";
}

}  // namespace

/// Inflates and verifies frames into the store as they come.
class Warming::Sink final : public remote::BlobSink {
 public:
  Sink(Warming& warming, const std::vector<Blob>& blobs) : warming_(warming) {
    for (const Blob& blob : blobs) open_[blob.digest].size = blob.size;
  }

  Result<void> piece(const codec::Digest& digest, std::string_view frame_piece) override {
    const auto found = open_.find(digest);
    if (found == open_.end()) return fail(ErrorCode::kInternal, "a blob that nobody asked for");
    Incoming& blob = found->second;
    if (!blob.writer) {
      auto writer = warming_.layers_.store->create(blob.size, store::Verifier::kCaller);
      if (!writer) return of_disk(fail(writer.error()));
      blob.writer = std::move(*writer);
      blob.decoder.emplace(digest, blob.size, [&blob](std::string_view bytes) {
        blob.came += bytes.size();
        return of_disk(blob.writer->append(bytes));
      });
    }
    return blob.decoder->feed(frame_piece);
  }

  void done(const codec::Digest& digest, Result<void> outcome) override {
    const auto found = open_.find(digest);
    if (found == open_.end()) return;
    if (outcome) outcome = finish(digest, found->second);
    const uint64_t size = found->second.size;
    open_.erase(found);
    if (!outcome && is_temporary(outcome.error())) warming_.waiting_ = outcome.error().what();
    const bool later = !outcome && (is_temporary(outcome.error()) || !is_of_blob(outcome.error()));
    if (!later) settled_.insert(digest);
    if (!outcome && !is_temporary(outcome.error()) && later) warming_.stop(why_stopped(outcome.error()));
    if (!later) warming_.settle({digest, size}, outcome);
  }

  [[nodiscard]] bool is_settled(const codec::Digest& digest) const { return settled_.contains(digest); }

 private:
  struct Incoming {
    uint64_t size = 0;
    uint64_t came = 0;
    std::unique_ptr<store::BlobWriter> writer;
    std::optional<codec::FrameDecoder> decoder;
  };

  static Result<void> finish(const codec::Digest& digest, Incoming& blob) {
    if (!blob.decoder) return fail(ErrorCode::kCorrupt, "an empty frame");
    INDUCTORFS_TRY(blob.decoder->finish());
    if (blob.came != blob.size) return fail(ErrorCode::kCorrupt, "the entry says another size");
    return of_disk(blob.writer->commit(digest));
  }
  static bool is_of_blob(const Error& error) {
    return error.code() == ErrorCode::kNotFound || error.code() == ErrorCode::kNotSupported ||
           error.code() == ErrorCode::kCorrupt || error.code() == ErrorCode::kTooLarge;
  }
  static std::string why_stopped(const Error& error) {
    return (error.code() == ErrorCode::kNoSpace ? "the store is full of what is in use: " : "") + error.what();
  }

  Warming& warming_;
  std::map<codec::Digest, Incoming> open_;
  std::set<codec::Digest> settled_;
};

Result<void> Warming::go_on(Deadline slice, const std::function<bool()>& cancelled) {
  const auto blobs = layers_.remote.blobs->blobs_until(cancelled);
  const auto index = layers_.remote.index->index_until(cancelled);
  do {
    waiting_.clear();
    switch (phase_) {
      case Phase::kScopes:
        INDUCTORFS_TRY(find_scopes(*index));
        break;
      case Phase::kEntries:
        read_entries(*index);
        break;
      case Phase::kCompare:
        compare(slice);
        break;
      case Phase::kFetch:
        fetch(*blobs);
        break;
      case Phase::kDone:
        return {};
    }
    if (!waiting_.empty()) std::this_thread::sleep_for(std::min(kRest, slice.left()));
  } while (!slice.passed() && !cancelled());
  return {};
}

// ---- what is in question

Result<void> Warming::find_scopes(remote::Index& index) {
  if (!selection_.family.empty() && shared_family(selection_.family) == nullptr) {
    std::vector<std::string> names;
    for (const layout::Rule& rule : layout::all_rules()) {
      if (rule.shared) names.emplace_back(rule.name);
    }
    return fail(ErrorCode::kInvalid,
                "--family " + config::printable(selection_.family) + ": there is no such shared family" +
                    config::suggestion(selection_.family, names) + "; inductorfs fingerprint --families lists them");
  }
  if (const std::string problem = selection_.pattern.empty() ? "" : layout::glob_problem(selection_.pattern);
      !problem.empty()) {
    return fail(ErrorCode::kInvalid, "--pattern " + config::printable(selection_.pattern) + ": " + problem);
  }
  const Result<std::vector<remote::ScopeInformation>> announced =
      index.list_scopes(remote::kAnnouncedScopesLimit, Deadline::after(kAskPatience));
  if (!announced) {
    if (!is_temporary(announced.error())) return fail(announced.error());
    waiting_ = announced.error().what();
    return {};
  }
  const fingerprint::Fingerprint& facts = layers_.host->state()->facts;
  const host::OpenFacts open{layers_.host->learns(), settings_.trust.value_or(fingerprint::TrustPolicy::kAll) !=
                                                         fingerprint::TrustPolicy::kAll};
  std::set<remote::ScopeId> known;
  for (const remote::ScopeInformation& scope : layers_.host->information()) {
    if (!known.insert(scope.id).second) continue;
    scopes_.push_back({scope.id, host::families_here(facts, open, scope), true});
  }
  for (const remote::ScopeInformation& scope : *announced) {
    if (!known.insert(scope.id).second) continue;
    std::vector<layout::Family> families = host::families_here(facts, open, scope);
    if (families.empty()) {
      ++other_hosts_;
    } else {
      scopes_.push_back({scope.id, std::move(families), false});
    }
  }
  INDUCTORFS_TRY(narrow_to_scope(*announced));
  phase_ = Phase::kEntries;
  return {};
}

Result<void> Warming::narrow_to_scope(const std::vector<remote::ScopeInformation>& announced) {
  const std::string& wanted = selection_.scope;
  if (wanted.empty()) return {};
  if (wanted.size() < control::kScopePrefix) {
    return fail(ErrorCode::kInvalid, "--scope " + config::printable(wanted) + ": give at least " +
                                         std::to_string(control::kScopePrefix) + " digits of the scope's id");
  }
  std::erase_if(scopes_, [&](const Scope& scope) { return !scope.id.starts_with(wanted); });
  if (!scopes_.empty()) return {};
  const host::OpenFacts open{layers_.host->learns(), true};
  for (const remote::ScopeInformation& scope : announced) {
    if (!scope.id.starts_with(wanted)) continue;
    const std::string facets = host::foreign_facets(layers_.host->state()->facts, open, scope);
    return fail(ErrorCode::kNotPermitted, "no job on this host can use the scope " + config::printable(wanted) +
                                              ": it belongs to hosts with other facts (" + config::printable(facets) +
                                              "); inductorfs fingerprint --compare shows how two hosts differ");
  }
  return fail(ErrorCode::kInvalid,
              "--scope " + config::printable(wanted) +
                  ": the cluster has announced no such scope: inductorfs explain shows the scope of a path");
}

void Warming::read_entries(remote::Index& index) {
  if (next_scope_ == scopes_.size()) {
    seen_.clear();
    std::stable_sort(found_.begin(), found_.end(),
                     [](const auto& one, const auto& other) { return one.first > other.first; });
    phase_ = Phase::kCompare;
    return;
  }
  const Scope& scope = scopes_[next_scope_];
  Result<remote::Delta> delta = index.read_changes(scope.id, position_, Deadline::after(kAskPatience));
  if (!delta) {
    if (is_temporary(delta.error())) {
      waiting_ = delta.error().what();
      return;
    }
    note_failure("a scope's entries cannot be read: " + delta.error().what());
  }
  const bool ends = !delta || delta->at_head || delta->position == position_;
  if (delta) {
    for (const codec::Entry& entry : delta->set) take(entry, scope);
    position_ = delta->position;
  }
  if (!ends) return;
  ++next_scope_;
  position_ = {};
}

void Warming::take(const codec::Entry& entry, const Scope& scope) {
  const layout::Classification found = layout::classify(entry.path);
  // What a host would not accept in this scope (Catalog::ScopeAccepts) would never be shown.
  if (std::find(scope.families.begin(), scope.families.end(), found.family) == scope.families.end()) return;
  if (found.canonical != entry.path) return;
  if (!selection_.family.empty() && layout::rule_of(found.family).name != selection_.family) return;
  if (!selection_.pattern.empty() && !layout::glob_matches(selection_.pattern, entry.path)) return;
  // No host publishes what is so large, and what an entry says of itself must not stop the rest.
  if (entry.size > settings_.artefact_limit) return note_failure("larger than --artefact-limit");
  if (found_.size() == Warmer::kMostArtefacts) {
    too_many_ = true;
    return;
  }
  ++entries_;
  if (!seen_.insert(entry.digest).second) return;
  all_.add(entry.size);
  found_.push_back({entry.mtime_ns, {entry.digest, entry.size}});
}

// ---- into the store

void Warming::compare(Deadline slice) {
  // All of them first: what is here becomes the most recently used, so that the fetches evict other blobs.
  while (compared_ < found_.size()) {
    const Blob& blob = found_[compared_++].second;
    const auto here = layers_.store->find(blob.digest);
    if (here && here->size == blob.size) {
      here_.add(blob.size);
      owned_.push_back(blob.digest);
    } else {
      missing_.push_back(blob);
    }
    if (compared_ % kLooks == 0 && slice.passed()) return;
  }
  found_ = {};
  phase_ = Phase::kFetch;
}

/// The bytes that the store may have at most: its limit, or what it has now and the disk lets it add.
uint64_t Warming::capacity() const {
  const store::StoreUsage usage = layers_.store->usage();
  const auto disk = disk_space(settings_.store);
  if (!disk) return usage.size_limit;
  const uint64_t available = disk->f_bavail * disk->f_frsize;
  return std::min(usage.size_limit, usage.bytes + available - std::min(available, usage.free_floor));
}

std::vector<Warming::Blob> Warming::next_batch() {
  std::vector<Blob> batch;
  const uint64_t room = capacity();
  uint64_t bytes = 0;
  while (!missing_.empty() && batch.size() < kBatchBlobs && bytes < kBatchBytes) {
    const Blob& blob = missing_.front();
    if (blob.size > selection_.limit - std::min(selection_.limit, fetched_.bytes + bytes)) {
      if (batch.empty()) stop("--limit " + config::human_bytes(selection_.limit) + " is reached");
      break;
    }
    const uint64_t own = here_.bytes + fetched_.bytes + bytes;
    if (blob.size > room - std::min(room, own)) {
      if (batch.empty()) {
        stop("the store is too small: it may have " + config::human_bytes(room) + ", and " + config::human_bytes(own) +
             " of the selection are in it; raise --store-limit, free some disk space, or select less");
      }
      break;
    }
    bytes += blob.size;
    batch.push_back(blob);
    missing_.pop_front();
  }
  return batch;
}

void Warming::fetch(remote::Blobs& blobs) {
  const std::vector<Blob> batch = next_batch();
  if (batch.empty()) {
    if (missing_.empty()) phase_ = Phase::kDone;
    return;
  }
  std::vector<codec::Digest> digests;
  digests.reserve(batch.size());
  for (const Blob& blob : batch) digests.push_back(blob.digest);
  const uint64_t evicted = layers_.store->usage().evicted;
  Sink sink(*this, batch);
  Budget budget(Deadline::after(Warmer::kFetchPatience), kAskPatience, std::chrono::steady_clock::now());
  blobs.fetch_within(digests, sink, budget);
  std::vector<Blob> unsettled;
  std::copy_if(batch.begin(), batch.end(), std::back_inserter(unsettled),
               [&](const Blob& blob) { return !sink.is_settled(blob.digest); });
  for (const Blob& blob : unsettled) {
    if (phase_ == Phase::kDone) left_.add(blob.size);
  }
  if (phase_ == Phase::kDone) return;
  missing_.insert(missing_.begin(), unsettled.begin(), unsettled.end());
  if (!unsettled.empty() && waiting_.empty()) waiting_ = "the remote did not answer for all blobs";
  if (layers_.store->usage().evicted != evicted) check_own();
}

/// The store evicts what was used least recently. Of this warming's own blobs that is the one that it looked at first
/// (find() makes it the last one): while that one is here, the store has evicted only other blobs.
void Warming::check_own() {
  if (owned_.empty()) return;
  const codec::Digest& oldest = owned_[oldest_owned_ % owned_.size()];
  ++oldest_owned_;
  if (layers_.store->find(oldest)) return;
  stop("the store is too small: running jobs use a part of it, and it began to evict what this warm has fetched; " +
       std::string("raise --store-limit, or select less"));
}

void Warming::settle(const Blob& blob, const Result<void>& outcome) {
  if (!outcome) return note_failure(why_failed(outcome.error()));
  fetched_.add(blob.size);
  owned_.push_back(blob.digest);
}

void Warming::stop(std::string why) {
  if (stopped_.empty()) stopped_ = std::move(why);
  for (const Blob& blob : missing_) left_.add(blob.size);
  missing_.clear();
  phase_ = Phase::kDone;
}

Json Warming::report() const {
  uint64_t failed = 0;
  Json why = Json::array();
  if (!stopped_.empty()) why.push_back(stopped_);
  if (too_many_) {
    why.push_back("more than " + std::to_string(Warmer::kMostArtefacts) +
                  " artefacts are selected: name a scope, a family " + "or a pattern");
  }
  for (const auto& [reason, count] : failures_) {
    failed += count;
    if (why.size() < kShownReasons) why.push_back(reason + ": " + std::to_string(count));
  }
  const bool done = is_done();
  return Json::object(
      {{"done", done},
       {"complete", done && why.empty()},
       {"reading", phase_ < Phase::kFetch},
       {"scopes", scopes_.size()},
       {"followed", std::count_if(scopes_.begin(), scopes_.end(), [](const Scope& scope) { return scope.followed; })},
       {"other_hosts", other_hosts_},
       {"entries", entries_},
       {"blobs", all_.blobs},
       {"bytes", all_.bytes},
       {"here", here_.blobs},
       {"here_bytes", here_.bytes},
       {"fetched", fetched_.blobs},
       {"fetched_bytes", fetched_.bytes},
       {"failed", failed},
       {"left", left_.blobs},
       {"left_bytes", left_.bytes},
       {"why", why},
       {"waiting",
        waiting_.empty() ? std::string() : "remote " + log::redact_url(settings_.remote) + ": " + waiting_}});
}

}  // namespace inductorfs::mount
