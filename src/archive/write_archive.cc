// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "cluster_entries.h"
#include "inductorfs/base/budget.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/codec/frame.h"
#include "inductorfs/layout/layout.h"
#include "inductorfs/layout/scope.h"
#include "inductorfs/layout/selection.h"
#include "manifest.h"
#include "tar.h"

namespace inductorfs::archive {
namespace {

constexpr uint64_t kBatchBytes = 32ULL << 20;
constexpr size_t kBatchBlobs = 128;
constexpr size_t kPiece = size_t{256} << 10;
constexpr Milliseconds kFetchPatience{600'000};

struct Wanted {
  codec::Digest digest;
  uint64_t size = 0;
};

/// Inflates and verifies frames into the spool.
class SpoolSink final : public remote::BlobSink {
 public:
  SpoolSink(store::BlobStore& spool, const std::vector<Wanted>& wanted) : spool_(spool) {
    for (const Wanted& one : wanted) open_[one.digest].size = one.size;
  }
  Result<void> piece(const codec::Digest& digest, std::string_view frame_piece) override {
    const auto found = open_.find(digest);
    if (found == open_.end()) return fail(ErrorCode::kInternal, "a blob that nobody asked for");
    Incoming& blob = found->second;
    if (!blob.writer) {
      INDUCTORFS_TRY_ASSIGN(auto writer, spool_.create(blob.size, store::Verifier::kCaller));
      blob.writer = std::move(writer);
      blob.decoder.emplace(digest, blob.size, [&blob](std::string_view bytes) { return blob.writer->append(bytes); });
    }
    return blob.decoder->feed(frame_piece);
  }
  void done(const codec::Digest& digest, Result<void> outcome) override {
    const auto found = open_.find(digest);
    if (found == open_.end()) return;
    Incoming blob = std::move(found->second);
    open_.erase(found);
    if (outcome && !blob.decoder) outcome = fail(ErrorCode::kCorrupt, "an empty frame");
    if (outcome) outcome = blob.decoder->finish();
    if (outcome) outcome = blob.writer->commit(digest);
    if (!outcome) errors_.emplace(digest, outcome.error());
  }
  [[nodiscard]] const std::map<codec::Digest, Error>& errors() const { return errors_; }

 private:
  struct Incoming {
    uint64_t size = 0;
    std::unique_ptr<store::BlobWriter> writer;
    std::optional<codec::FrameDecoder> decoder;
  };
  store::BlobStore& spool_;
  std::map<codec::Digest, Incoming> open_;
  std::map<codec::Digest, Error> errors_;
};

bool is_text(std::string_view path) {
  return std::all_of(path.begin(), path.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

Result<std::vector<ArchivedScope>> select(remote::Index& index, const Excerpt& excerpt, Report& report) {
  INDUCTORFS_TRY_ASSIGN(auto scopes, index.list_scopes(remote::kAnnouncedScopesLimit, Deadline::after(kAskPatience)));
  std::vector<ArchivedScope> found;
  size_t count = 0;
  for (remote::ScopeInformation& scope : scopes) {
    if (!excerpt.selection.fits_scope(scope.id)) continue;
    if (!excerpt.torch.empty() && !layout::is_of_torch(scope.text, excerpt.torch)) continue;
    INDUCTORFS_TRY_ASSIGN(auto entries, entries_of(index, scope.id));
    ArchivedScope one{std::move(scope), {}};
    for (codec::Entry& entry : entries) {
      if (!excerpt.selection.fits(entry)) continue;
      std::string problem = is_text(entry.path) ? why_unfit(entry, one.scope) : "a path is no text";
      if (!problem.empty()) {
        ++report.refused[problem];
        continue;
      }
      if (++count > kMostEntries) {
        return fail(ErrorCode::kTooLarge, "more than " + std::to_string(kMostEntries) +
                                              " entries are selected: name a scope, a family or a pattern");
      }
      one.entries.push_back(std::move(entry));
    }
    if (!one.entries.empty()) found.push_back(std::move(one));
  }
  return found;
}

Result<void> write_blob(TarWriter& tar, store::BlobStore& spool, const Wanted& blob) {
  INDUCTORFS_TRY_ASSIGN(const auto file, spool.open_blob(blob.digest));
  INDUCTORFS_TRY(tar.begin(std::string(kBlobFolder) + blob.digest.to_hex(), blob.size));
  std::string piece(kPiece, '\0');
  for (uint64_t offset = 0; offset < blob.size;) {
    INDUCTORFS_TRY_ASSIGN(const size_t got, file.read(piece.data(), piece.size(), offset));
    if (got == 0) return fail(ErrorCode::kCorrupt, "a blob of the temporary directory became shorter");
    INDUCTORFS_TRY(tar.append(std::string_view(piece).substr(0, got)));
    offset += got;
  }
  return {};
}

/// An error that says nothing about the blob ends the export.
Result<std::string> why_lost(const Error& error) {
  if (error.code() == ErrorCode::kNotFound) return std::string("the cluster has lost the bytes");
  if (error.code() == ErrorCode::kCorrupt || error.code() == ErrorCode::kTooLarge) {
    return std::string("the bytes in the cluster are damaged");
  }
  if (error.code() == ErrorCode::kNotSupported) return std::string("only a newer inductorfs can read the bytes");
  return fail(error);
}

Result<void> write_batch(remote::Blobs& blobs, store::BlobStore& spool, TarWriter& tar,
                         const std::vector<Wanted>& batch, std::unordered_map<codec::Digest, std::string>& lost) {
  std::vector<codec::Digest> digests;
  digests.reserve(batch.size());
  for (const Wanted& one : batch) digests.push_back(one.digest);
  SpoolSink sink(spool, batch);
  Budget budget(Deadline::after(kFetchPatience), kAskPatience, std::chrono::steady_clock::now());
  blobs.fetch_within(digests, sink, budget);
  for (const Wanted& one : batch) {
    if (const auto error = sink.errors().find(one.digest); error != sink.errors().end()) {
      INDUCTORFS_TRY_ASSIGN(auto why, why_lost(error->second));
      lost.emplace(one.digest, std::move(why));
      continue;
    }
    const auto here = spool.find(one.digest);
    if (!here || here->size != one.size) {
      lost.emplace(one.digest, "the bytes in the cluster have another size than the entry says");
      continue;
    }
    INDUCTORFS_TRY(write_blob(tar, spool, one));
    spool.discard(one.digest);
  }
  return {};
}

/// In the order in which they were made, so that those of one solid block of the cluster are fetched together.
std::vector<Wanted> blobs_of(const std::vector<ArchivedScope>& scopes) {
  std::vector<const codec::Entry*> entries;
  for (const ArchivedScope& scope : scopes) {
    for (const codec::Entry& entry : scope.entries) entries.push_back(&entry);
  }
  std::ranges::stable_sort(entries, {}, &codec::Entry::mtime_ns);
  std::unordered_set<codec::Digest> seen;
  std::vector<Wanted> blobs;
  for (const codec::Entry* entry : entries) {
    if (seen.insert(entry->digest).second) blobs.push_back({entry->digest, entry->size});
  }
  return blobs;
}

}  // namespace

uint64_t Report::refusals() const {
  uint64_t count = 0;
  for (const auto& [why, number] : refused) count += number;
  return count;
}

Result<Report> write_archive(remote::Blobs& blobs, remote::Index& index, store::BlobStore& spool,
                             const Excerpt& excerpt, int fd, const OnProgress& progress) {
  Report report;
  INDUCTORFS_TRY(layout::check_selection(excerpt.selection));
  INDUCTORFS_TRY_ASSIGN(const auto scopes, select(index, excerpt, report));
  if (scopes.empty() && report.refused.empty()) {
    return fail(ErrorCode::kInvalid, "the cluster has nothing of this selection: check --scope, --torch, --family, " +
                                         std::string("--pattern and --prefix"));
  }
  report.scopes = scopes.size();
  const std::string manifest = manifest_text(scopes);
  if (manifest.size() > kManifestLimit) {
    return fail(ErrorCode::kTooLarge, "too many entries are selected: name a scope, a family or a pattern");
  }
  INDUCTORFS_TRY_ASSIGN(auto tar, TarWriter::open(fd));
  INDUCTORFS_TRY(tar.begin(kManifestName, manifest.size()));
  INDUCTORFS_TRY(tar.append(manifest));
  std::unordered_map<codec::Digest, std::string> lost;
  const std::vector<Wanted> wanted = blobs_of(scopes);
  for (size_t next = 0; next < wanted.size();) {
    std::vector<Wanted> batch;
    uint64_t bytes = 0;
    while (next < wanted.size() && batch.size() < kBatchBlobs && bytes < kBatchBytes) {
      bytes += wanted[next].size;
      batch.push_back(wanted[next++]);
    }
    INDUCTORFS_TRY(write_batch(blobs, spool, tar, batch, lost));
    report.blobs = next - lost.size();
    report.bytes += bytes;
    progress(report);
  }
  for (const ArchivedScope& scope : scopes) {
    for (const codec::Entry& entry : scope.entries) {
      if (const auto found = lost.find(entry.digest); found != lost.end()) {
        ++report.refused[found->second];
      } else {
        ++report.done;
      }
    }
  }
  INDUCTORFS_TRY(tar.close());
  return report;
}

}  // namespace inductorfs::archive
