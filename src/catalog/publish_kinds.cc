// SPDX-License-Identifier: Apache-2.0
// How each kind of group gets to the cluster: the second part of Publisher.
#include <algorithm>
#include <atomic>
#include <set>
#include <string_view>
#include <utility>

#include "catalog/publisher.h"
#include "inductorfs/base/host_error.h"
#include "inductorfs/codec/frame.h"
#include "inductorfs/layout/layout.h"

namespace inductorfs::catalog {
namespace {

/// Base of a publish's deadline, and of a read's.
constexpr Milliseconds kPatience{2'000};
/// A slower link than this, in bytes a millisecond, is no use for artefacts of that size.
constexpr uint64_t kSlowestLink = 2ULL * 1024;
/// Steps of one look past the tail.
constexpr int kLookSteps = 256;

constexpr std::string_view kSuperseded = "superseded: the cluster has another's for this key";
constexpr std::string_view kNewer =
    "superseded: a newer release has published this key in a form that this one cannot read; upgrade this mount";
constexpr std::string_view kFull = "the scope is full: waits until a sweep has made room";
constexpr std::string_view kSentByAnother = "another host sends the same just now";

/// Rounds of a merge against other writers before the queue's own back-off takes over.
constexpr int kMergeRounds = 8;
constexpr Milliseconds kFetchPatience{10'000};

/// Frames of blobs in the store, piece by piece. Ends early when the catalog stops, so that stop() need not wait for a
/// large blob. Confined to the catalog-publish thread.
class StoreSource final : public remote::BlobSource {
 public:
  StoreSource(store::BlobStore& store, const std::atomic<bool>& stopping) : store_(store), stopping_(stopping) {}

  Result<void> read(const codec::Digest& digest, size_t piece,
                    const std::function<Result<void>(std::string_view)>& sink) override {
    const auto info = store_.find(digest);
    if (!info) return gone(digest, "is no longer in the store");
    auto blob = store_.open_blob(digest);
    if (!blob && is_of_host(blob.error().code())) return fail(std::move(blob).error());
    if (!blob) return gone(digest, "cannot be read: " + blob.error().text());
    bool by_sink = false;
    const auto read = [&](char* out, size_t size, uint64_t at) { return blob->read(out, size, at); };
    auto outcome = codec::encode_frame(read, info->size, digest, piece, [&](std::string_view bytes) -> Result<void> {
      if (stopping_) return fail(ErrorCode::kUnavailable, "stopping");
      auto taken = sink(bytes);
      by_sink = !taken;
      return taken;
    });
    if (!outcome && !by_sink && outcome.error().code() == ErrorCode::kCorrupt) {
      store_.discard(digest);
      return gone(digest, "is damaged: " + outcome.error().text());
    }
    return outcome;
  }
  /// Why this host cannot give the bytes; empty while it can.
  [[nodiscard]] const std::string& failure() const { return failure_; }

 private:
  Result<void> gone(const codec::Digest& digest, const std::string& why) {
    failure_ = "blob " + digest.to_hex() + " " + why;
    return fail(ErrorCode::kNotFound, failure_);
  }

  store::BlobStore& store_;
  const std::atomic<bool>& stopping_;
  std::string failure_;
};

PublishReport ended(PublishState state, std::string_view why = {}) {
  return {{}, state, std::string(why), std::nullopt};
}

}  // namespace

PublishReport Publisher::damaged(std::string why) {
  return {{}, PublishState::kKeptLocal, std::move(why), std::nullopt, true};
}

std::optional<PublishReport> Publisher::hopeless(const Publish& publish) const {
  if (!parts_.options.keeps_local.empty()) return ended(PublishState::kKeptLocal, parts_.options.keeps_local);
  for (const auto& entry : publish.entries) {
    if (entry.size > parts_.options.artefact_limit) {
      return ended(PublishState::kKeptLocal, entry.path + " has " + std::to_string(entry.size) +
                                                 " bytes, more than the limit of " +
                                                 std::to_string(parts_.options.artefact_limit));
    }
  }
  return std::nullopt;
}

/// One whose blob has left the store: it is damaged, or the disk did not take that it was published.
Result<std::optional<Publisher::Outcome>> Publisher::without_blob(const Item& item) {
  const auto& entries = item.publish.entries;
  const auto lacks = [&](const codec::Entry& entry) { return !parts_.store.find(entry.digest); };
  const auto lacking = std::ranges::find_if(entries, lacks);
  if (lacking == entries.end()) return std::nullopt;
  INDUCTORFS_TRY_ASSIGN(const bool held, holds_already(item));
  if (held) return Outcome{ended(PublishState::kPublished), {}};
  return Outcome{damaged("blob " + lacking->digest.to_hex() + " of " + lacking->path + " is no longer in the store"),
                 {}};
}

Result<Publisher::Outcome> Publisher::attempt(const Item& item) {
  if (auto report = hopeless(item.publish)) return Outcome{std::move(*report), {}};
  INDUCTORFS_TRY_ASSIGN(auto gone, without_blob(item));
  if (gone) return std::move(*gone);
  parts_.tree.write([&](EntryTree& tree) { tree.echoes().watch(paths_of(item.publish)); });
  switch (item.publish.kind) {
    case Publish::Kind::kPlain:
    case Publish::Kind::kFirstOfPath:
      return publish_plain(item);
    case Publish::Kind::kFirst:
      return publish_first(item);
    case Publish::Kind::kCandidate:
      return publish_candidate(item);
    case Publish::Kind::kMerge:
      return publish_merged(item);
  }
  return fail(ErrorCode::kCorrupt, "unknown kind of publish");
}

Result<Publisher::Sent> Publisher::send(const remote::PublishGroup& group) {
  uint64_t bytes = 0;
  for (const auto& entry : group.entries) bytes += entry.size;
  StoreSource source(parts_.store, parts_.stopping);
  const auto patience = kPatience + Milliseconds(static_cast<Milliseconds::rep>(bytes / kSlowestLink));
  auto outcome = index_->publish(group, source, Deadline::after(patience));
  if (outcome && *outcome == remote::PublishOutcome::kFull) sweeper_.want(group.scope);
  if (outcome) return Sent{*outcome, std::nullopt};
  if (!source.failure().empty()) {
    return Sent{{}, Outcome{damaged(source.failure()), {}}};
  }
  const ErrorCode code = outcome.error().code();
  if (code == ErrorCode::kInvalid || code == ErrorCode::kTooLarge) {
    return Sent{{}, Outcome{ended(PublishState::kRefused, outcome.error().text()), {}}};
  }
  return fail(std::move(outcome).error());
}

Result<Publisher::Outcome> Publisher::publish_plain(const Item& item) {
  remote::PublishGroup group{item.publish.scope, item.publish.entries, std::nullopt, std::nullopt};
  group.first_of_path = item.publish.kind == Publish::Kind::kFirstOfPath;
  if (group.first_of_path) {
    // Whoever deleted the first one, or cannot use it, made this one in its place.
    const auto unused = parts_.tree.read(
        [&](const EntryTree& tree) { return tree.find_unused(item.publish.scope, item.publish.entries.front().path); });
    if (unused) {
      group.first_of_path = false;
      group.replaces = remote::PublishGroup::Replaces{unused};
    }
  }
  INDUCTORFS_TRY_ASSIGN(auto sent, send(group));
  if (sent.refused) return std::move(*sent.refused);
  if (sent.outcome == remote::PublishOutcome::kConflict && !group.replaces) {
    return fail(ErrorCode::kInternal, "the cluster refused a publish that had no condition");
  }
  return settled(sent.outcome, item.publish.entries);
}

Publisher::Outcome Publisher::superseded(std::string_view why) {
  Outcome outcome{ended(PublishState::kKeptLocal, why), {}};
  outcome.superseded = true;
  return outcome;
}

Publisher::Outcome Publisher::settled(remote::PublishOutcome outcome, std::vector<codec::Entry> entries) {
  switch (outcome) {
    case remote::PublishOutcome::kPublished:
      return {ended(PublishState::kPublished), std::move(entries)};
    case remote::PublishOutcome::kHeld:
      return {ended(PublishState::kPublished), std::move(entries), true};
    case remote::PublishOutcome::kFull:
      return {ended(PublishState::kQueued, kFull), {}};
    case remote::PublishOutcome::kClaimed:
      return {ended(PublishState::kQueued, kSentByAnother), {}};
    case remote::PublishOutcome::kNewer:
      return superseded(kNewer);
    case remote::PublishOutcome::kSuperseded:
    case remote::PublishOutcome::kConflict:
      break;
  }
  return superseded(kSuperseded);
}

Result<Publisher::Outcome> Publisher::publish_first(const Item& item) {
  // Known to be lost: spare the cluster the bytes. Only other bytes under one of our names prove it.
  const bool lost = parts_.tree.read([&](const EntryTree& tree) {
    return std::ranges::any_of(item.publish.entries, [&](const codec::Entry& entry) {
      const auto known = tree.find_known(item.publish.scope, entry.path);
      return known && known->digest != entry.digest;
    });
  });
  if (lost) return superseded(kSuperseded);
  return contest(item, 0);
}

Result<Publisher::Outcome> Publisher::publish_candidate(const Item& item) {
  const auto candidates = parts_.tree.read(
      [&](const EntryTree& tree) { return tree.candidates(item.publish.scope, item.publish.contest); });
  const auto paths = paths_of(item.publish);
  const std::set<std::string> ours(paths.begin(), paths.end());
  const std::set<std::string> seen(item.publish.seen.begin(), item.publish.seen.end());
  std::set<std::string> all = seen;
  size_t others = 0;
  for (const auto& candidate : candidates) {
    // A lost one still counts where the cluster counts, but nobody can have used it.
    all.insert(candidate.path);
    if (candidate.lost || ours.contains(candidate.path)) continue;
    ++others;
    if (!seen.contains(candidate.path)) return superseded(kSuperseded);
  }
  if (others >= parts_.options.candidates_per_key) {
    return superseded("the key has " + std::to_string(others) + " candidates already");
  }
  return contest(item, all.size());
}

Result<Publisher::Outcome> Publisher::contest(const Item& item, uint64_t most) {
  remote::PublishGroup group{item.publish.scope, item.publish.entries, {}, {}};
  group.contest = remote::PublishGroup::Contest{item.publish.contest, most};
  INDUCTORFS_TRY_ASSIGN(auto sent, send(group));
  if (sent.refused) return std::move(*sent.refused);
  if (sent.outcome != remote::PublishOutcome::kSuperseded) return settled(sent.outcome, item.publish.entries);
  // Lost against ourselves? An earlier attempt may have been done although its answer never came.
  INDUCTORFS_TRY_ASSIGN(auto held, holds_already(item));
  if (held) return Outcome{ended(PublishState::kPublished), item.publish.entries};
  return settled(sent.outcome, {});
}

Result<bool> Publisher::holds_already(const Item& item) {
  INDUCTORFS_TRY_ASSIGN(auto now, current(item.publish.scope, paths_of(item.publish), false));
  return std::ranges::all_of(item.publish.entries, [&](const codec::Entry& entry) {
    const auto& known = now[entry.path];
    return known && known->digest == entry.digest;
  });
}

Result<Publisher::Current> Publisher::current(const remote::ScopeId& scope, const std::vector<std::string>& paths,
                                              bool whole) {
  Current now;
  for (const auto& path : paths) now[path] = std::nullopt;
  remote::Position position;
  const auto index = parts_.tree.read([&](const EntryTree& tree) { return tree.scopes().index_of(scope); });
  if (index && !whole) {
    // The position first: memory is never behind it, so what follows in the log is at least as new.
    position = tail_.position(*index);
    parts_.tree.read([&](const EntryTree& tree) {
      if (tree.scopes().index_of(scope) != index) position = {};  // no longer followed: memory has nothing of it
      if (position == remote::Position{}) return;
      for (auto& [path, entry] : now) entry = tree.find_known(scope, path);
    });
  }
  for (int step = 0; step < kLookSteps && !parts_.stopping; ++step) {
    INDUCTORFS_TRY_ASSIGN(auto delta, index_->read_changes(scope, position, Deadline::after(kPatience)));
    if (delta.reset) {
      for (auto& [path, entry] : now) entry.reset();
    }
    if (delta.set.empty() && delta.removed.empty() && delta.position == position) return now;
    for (const auto& path : delta.removed) {
      if (auto place = now.find(path); place != now.end()) place->second.reset();
    }
    for (auto& entry : delta.set) {
      if (auto place = now.find(entry.path); place != now.end()) place->second = std::move(entry);
    }
    if (delta.at_head) return now;
    position = delta.position;
  }
  return fail(ErrorCode::kTimedOut, "the scope's log does not come to an end");
}

Result<std::optional<std::string>> Publisher::bytes_of(const codec::Digest& digest, bool from_cluster) {
  if (const auto info = parts_.store.find(digest); info && info->size <= kMergeLimit) {
    INDUCTORFS_TRY_ASSIGN(const auto blob, parts_.store.open_blob(digest));
    auto bytes = blob.read_all(kMergeLimit);
    if (!bytes && bytes.error().code() != ErrorCode::kCorrupt) return fail(std::move(bytes).error());
    if (bytes && codec::digest_of(*bytes) == digest) return *bytes;
    parts_.store.discard(digest);
  }
  if (!from_cluster) return std::nullopt;
  auto bytes = remote::fetch_bytes(*blobs_, digest, kMergeLimit, Deadline::after(kFetchPatience));
  if (bytes) return *std::move(bytes);
  const Error& error = bytes.error();
  // A newer release's timings must not be put away by who cannot read them.
  if (is_temporary(error) || error.code() == ErrorCode::kNotSupported) return fail(error);
  return std::nullopt;  // evicted, damaged or absurd: nothing to merge with
}

Result<Publisher::Merge> Publisher::merge(const codec::Entry& ours, const codec::Entry& theirs) {
  INDUCTORFS_TRY_ASSIGN(auto mine, bytes_of(ours.digest, false));
  if (!mine) return Merge{ours, false, "blob " + ours.digest.to_hex() + " is gone or too large to merge"};
  INDUCTORFS_TRY_ASSIGN(auto other, bytes_of(theirs.digest, true));
  if (!other) return Merge{ours, false, std::nullopt};
  auto merged = layout::merge_system_autotune(*mine, *other);
  if (!merged) return Merge{ours, false, merged.error().text()};
  if (*merged == *other) return Merge{theirs, true, std::nullopt};
  if (*merged == *mine) return Merge{ours, false, std::nullopt};
  INDUCTORFS_TRY_ASSIGN(auto digest, parts_.store.put(*merged));
  codec::Entry entry = ours;
  entry.digest = digest;
  entry.size = merged->size();
  entry.mtime_ns = std::max(ours.mtime_ns, theirs.mtime_ns);
  return Merge{std::move(entry), false, std::nullopt};
}

Result<Publisher::Outcome> Publisher::publish_merged(const Item& item) {
  const codec::Entry& ours = item.publish.entries.front();
  const remote::ScopeId& scope = item.publish.scope;
  std::optional<codec::Entry> theirs =
      parts_.tree.read([&](const EntryTree& tree) { return tree.find_known(scope, ours.path); });
  for (int round = 0; round < kMergeRounds && !parts_.stopping; ++round) {
    Merge step{ours, false, std::nullopt};
    if (theirs && theirs->digest != ours.digest) {
      INDUCTORFS_TRY_ASSIGN(auto merged, merge(ours, *theirs));
      step = std::move(merged);
    }
    if (step.refused && !parts_.store.find(ours.digest)) return Outcome{damaged(*step.refused), {}};
    if (step.refused) return Outcome{{{}, PublishState::kRefused, *step.refused, std::nullopt}, {}};
    Outcome done{{{}, PublishState::kPublished, {}, step.entry}, {step.entry}};
    if (step.nothing_new) return done;

    remote::PublishGroup group{scope, {step.entry}, std::nullopt, std::nullopt};
    INDUCTORFS_TRY(sign(scope, group.entries));
    group.replaces = remote::PublishGroup::Replaces{theirs ? std::optional(theirs->digest) : std::nullopt};
    INDUCTORFS_TRY_ASSIGN(auto sent, send(group));
    if (sent.refused) return std::move(*sent.refused);
    done.held = sent.outcome == remote::PublishOutcome::kHeld;
    if (done.held || sent.outcome == remote::PublishOutcome::kPublished) return done;
    if (sent.outcome != remote::PublishOutcome::kConflict) return settled(sent.outcome, {});
    // Somebody else was faster. The log first; the whole index when the log does not explain it.
    INDUCTORFS_TRY_ASSIGN(auto now, current(scope, {ours.path}, round > 1));
    theirs = std::move(now[ours.path]);
  }
  return fail(ErrorCode::kBusy, ours.path + ": others publish it all the time");
}

}  // namespace inductorfs::catalog
