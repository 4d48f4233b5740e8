// SPDX-License-Identifier: Apache-2.0
// Publishing what is merged with the cluster's bytes (cache/<system hash>): the third part of Publisher.
#include <algorithm>
#include <string_view>
#include <utility>

#include "catalog/publisher.h"
#include "inductorfs/layout/layout.h"

namespace inductorfs::catalog {
namespace {

/// Both sides of a merge are held in memory.
constexpr uint64_t kMergeLimit = 64ULL << 20;
/// Rounds against other writers before the queue's own back-off takes over.
constexpr int kMergeRounds = 8;
constexpr Milliseconds kFetchPatience{10'000};

}  // namespace

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
  if (!merged) return Merge{ours, false, merged.error().to_string()};
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
