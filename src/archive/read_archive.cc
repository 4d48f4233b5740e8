// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>
#include <unordered_map>

#include "cluster_entries.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/codec/frame.h"
#include "inductorfs/layout/layout.h"
#include "manifest.h"
#include "tar.h"

namespace inductorfs::archive {
namespace {

constexpr size_t kPiece = size_t{256} << 10;
constexpr Milliseconds kPublishPatience{10'000};
/// A slower link than this, in bytes a millisecond, is no use for artefacts of that size.
constexpr uint64_t kSlowestLink = 2048;
/// While another host sends the same group, or the server does not answer.
constexpr int kTries = 10;
constexpr Milliseconds kPause{1000};
/// Bytes of blobs whose entries are not imported, which have to be inflated all the same.
constexpr uint64_t kMostSkipped = uint64_t{1} << 40;
/// As CatalogOptions::candidates_per_key.
constexpr size_t kCandidatesPerKey = 8;

/// Frames of the blobs in the spool.
class SpoolSource final : public remote::BlobSource {
 public:
  explicit SpoolSource(store::BlobStore& spool) : spool_(spool) {}
  Result<void> read(const codec::Digest& digest, size_t piece,
                    const std::function<Result<void>(std::string_view)>& sink) override {
    const auto info = spool_.find(digest);
    if (!info) return fail(ErrorCode::kNotFound, "a blob is no longer in the temporary directory");
    INDUCTORFS_TRY_ASSIGN(const auto blob, spool_.open_blob(digest));
    const auto read = [&](char* out, size_t size, uint64_t at) { return blob.read(out, size, at); };
    return codec::encode_frame(read, info->size, digest, piece, sink);
  }

 private:
  store::BlobStore& spool_;
};

// ---- out of the file

Result<std::string> read_manifest_member(TarReader& tar) {
  INDUCTORFS_TRY_ASSIGN(const auto member, tar.next());
  if (!member || member->name != kManifestName || member->size > kManifestLimit) {
    return fail(ErrorCode::kCorrupt, "this is no archive of inductorfs export: it does not begin with a manifest");
  }
  std::string text;
  while (true) {
    INDUCTORFS_TRY_ASSIGN(const std::string piece, tar.read(kPiece));
    if (piece.empty()) return text;
    text += piece;
    if (text.size() > kManifestLimit) return fail(ErrorCode::kCorrupt, "the archive's manifest is too large");
  }
}

using Wanted = std::unordered_map<codec::Digest, uint64_t>;

/// The blobs of all entries, which have to fit into `room`: a small file may inflate to more than any disk has.
Result<Wanted> wanted_blobs(const std::vector<ArchivedScope>& scopes, uint64_t room) {
  Wanted wanted;
  uint64_t bytes = 0;
  for (const ArchivedScope& scope : scopes) {
    for (const codec::Entry& entry : scope.entries) {
      if (wanted.try_emplace(entry.digest, entry.size).second) bytes += entry.size;
    }
  }
  if (bytes <= room) return wanted;
  return fail(ErrorCode::kNoSpace, "the archive has " + std::to_string(bytes >> 20) +
                                       " MiB, and the disk of TMPDIR has " + std::to_string(room >> 20) +
                                       " MiB to spare: name another TMPDIR");
}

/// Takes the blobs that are wanted. A blob with other bytes than its name says is left out.
Result<void> spool_blobs(TarReader& tar, const Wanted& wanted, store::BlobStore& spool, Report& report,
                         const OnProgress& progress) {
  std::set<codec::Digest> named;
  uint64_t skipped = 0;
  while (true) {
    INDUCTORFS_TRY_ASSIGN(const auto member, tar.next());
    if (!member) return {};
    const auto digest = member->name.starts_with(kBlobFolder)
                            ? codec::Digest::from_hex(std::string_view(member->name).substr(kBlobFolder.size()))
                            : std::nullopt;
    // What no entry names may be of an entry that was refused, which has no limit that would hold here.
    if (!digest || member->size > kArtefactLimit || !named.insert(*digest).second || named.size() > kMostEntries) {
      return fail(ErrorCode::kCorrupt, "this is no archive of inductorfs export: it has a file that is no blob");
    }
    const auto size = wanted.find(*digest);
    if (size == wanted.end() || size->second != member->size) {
      skipped += member->size;
      if (skipped > kMostSkipped) return fail(ErrorCode::kCorrupt, "the archive has too much that no entry needs");
      continue;
    }
    INDUCTORFS_TRY_ASSIGN(auto writer, spool.create(member->size));
    while (true) {
      INDUCTORFS_TRY_ASSIGN(const std::string piece, tar.read(kPiece));
      if (piece.empty()) break;
      INDUCTORFS_TRY(writer->append(piece));
    }
    const Result<void> done = writer->commit(*digest);
    if (!done && done.error().code() != ErrorCode::kCorrupt) return done;
    if (!done) continue;  // its entries lack their bytes
    ++report.blobs;
    report.bytes += member->size;
    progress(report);
  }
}

/// What is wrong with a file is so the next time too; of a pipe another try may bring more.
Error settled(int fd, Error error) {
  const bool is_bad = error.code() == ErrorCode::kCorrupt || error.code() == ErrorCode::kNotSupported;
  struct stat found {};
  const bool stays = ::fstat(fd, &found) == 0 && (S_ISREG(found.st_mode) || S_ISDIR(found.st_mode));
  if (!is_bad || !stays) return error;
  return Error(ErrorCode::kInvalid, error.what());
}

Result<std::vector<ArchivedScope>> take_archive(int fd, store::BlobStore& spool, const Audience& audience,
                                                uint64_t room, Report& report, const OnProgress& progress) {
  INDUCTORFS_TRY_ASSIGN(auto tar, TarReader::open(fd));
  INDUCTORFS_TRY_ASSIGN(const std::string manifest, read_manifest_member(tar));
  INDUCTORFS_TRY_ASSIGN(auto scopes, read_manifest(manifest, audience, report));
  INDUCTORFS_TRY_ASSIGN(const auto wanted, wanted_blobs(scopes, room));
  INDUCTORFS_TRY(spool_blobs(tar, wanted, spool, report, progress));
  return scopes;
}

// ---- into the cluster

/// One scope while it is published. Confined to the calling thread.
class ScopeImport {
 public:
  ScopeImport(remote::Index& index, store::BlobStore& spool, const remote::ScopeInformation& scope, Report& report)
      : index_(index), source_(spool), spool_(spool), scope_(scope), report_(report) {}

  Result<void> run(const std::vector<codec::Entry>& entries) {
    INDUCTORFS_TRY_ASSIGN(const auto known, entries_of(index_, scope_.id));
    for (const codec::Entry& entry : known) note(entry);
    for (auto& [key, group] : groups_of(entries)) INDUCTORFS_TRY(import(group));
    return {};
  }

 private:
  using Group = std::vector<codec::Entry>;

  /// Whose files belong together is one group, as a mount publishes it; every other entry is a group of its own.
  static std::map<std::string, Group> groups_of(const std::vector<codec::Entry>& entries) {
    std::map<std::string, Group> groups;
    for (const codec::Entry& entry : entries) {
      const layout::Classification found = layout::classify(entry.path);
      const bool together = layout::rule_of(found.family).contest == layout::Contest::kFirst;
      groups[together && !found.key_directory.empty() ? found.key_directory : entry.path].push_back(entry);
    }
    return groups;
  }

  void note(const codec::Entry& entry) {
    known_.insert_or_assign(entry.path, entry.digest);
    const layout::Classification found = layout::classify(entry.path);
    if (layout::rule_of(found.family).contest != layout::Contest::kCandidates) return;
    candidates_[found.key_directory].insert(entry.path);
  }

  Result<void> import(const Group& group) {
    for (const codec::Entry& entry : group) {
      const auto blob = spool_.find(entry.digest);
      if (!blob || blob->size != entry.size) return refuse(group, "the archive lacks the bytes, or they are damaged");
    }
    if (group.size() > codec::kRecordEntryLimit) return refuse(group, "a group has too many entries");
    remote::PublishGroup publish{scope_.id, group, {}, {}, false};
    const layout::Classification found = layout::classify(group.front().path);
    switch (layout::rule_of(found.family).contest) {
      case layout::Contest::kNone:
      case layout::Contest::kMerge:
        publish.replaces = remote::PublishGroup::Replaces{};  // the cluster's own is newer, or merged from more
        break;
      case layout::Contest::kFirst:
        publish.contest = remote::PublishGroup::Contest{found.key_directory, 0};
        break;
      case layout::Contest::kFirstOfPath:
        publish.first_of_path = true;
        break;
      case layout::Contest::kCandidates: {
        const std::set<std::string>& others = candidates_[found.key_directory];
        if (!others.contains(group.front().path) && others.size() >= kCandidatesPerKey) {
          return refuse(group, "the key has " + std::to_string(others.size()) + " candidates already");
        }
        publish.contest = remote::PublishGroup::Contest{found.key_directory, others.size()};
        break;
      }
    }
    return send(publish);
  }

  Result<void> send(const remote::PublishGroup& group) {
    uint64_t bytes = 0;
    for (const codec::Entry& entry : group.entries) bytes += entry.size;
    const Milliseconds patience = kPublishPatience + Milliseconds(static_cast<int64_t>(bytes / kSlowestLink));
    for (int attempt = 1;; ++attempt) {
      const auto outcome = index_.publish(group, source_, Deadline::after(patience));
      const bool again =
          outcome ? *outcome == remote::PublishOutcome::kClaimed
                  : outcome.error().code() == ErrorCode::kUnavailable || outcome.error().code() == ErrorCode::kTimedOut;
      if (again && attempt < kTries) {
        std::this_thread::sleep_for(kPause);
        continue;
      }
      if (!outcome) return fail(outcome.error());
      return settle(group.entries, *outcome);
    }
  }

  /// The cluster also answers kPublished if it has exactly these entries, mtime and origin too.
  [[nodiscard]] bool is_known(const Group& group) const {
    return std::all_of(group.begin(), group.end(), [&](const codec::Entry& entry) {
      const auto found = known_.find(entry.path);
      return found != known_.end() && found->second == entry.digest;
    });
  }

  Result<void> settle(const Group& group, remote::PublishOutcome outcome) {
    if (outcome == remote::PublishOutcome::kPublished && is_known(group)) outcome = remote::PublishOutcome::kHeld;
    switch (outcome) {
      case remote::PublishOutcome::kPublished:
        report_.done += group.size();
        for (const codec::Entry& entry : group) note(entry);
        return {};
      case remote::PublishOutcome::kHeld:
      case remote::PublishOutcome::kSuperseded:
      case remote::PublishOutcome::kConflict:
        report_.had += group.size();
        return {};
      case remote::PublishOutcome::kNewer:
        return refuse(group, "a newer inductorfs has published the same in a form that this one cannot read");
      case remote::PublishOutcome::kFull:
        return refuse(group, "the scope is full: import again after a sweep, which a mount does once a day");
      case remote::PublishOutcome::kClaimed:
        return refuse(group, "another host sends the same: import again");
    }
    return {};
  }

  Result<void> refuse(const Group& group, const std::string& why) {
    report_.refused[why] += group.size();
    return {};
  }

  remote::Index& index_;
  SpoolSource source_;
  store::BlobStore& spool_;
  const remote::ScopeInformation& scope_;
  Report& report_;
  std::map<std::string, codec::Digest> known_;
  std::map<std::string, std::set<std::string>> candidates_;
};

}  // namespace

Result<Report> read_archive(remote::Index& index, store::BlobStore& spool, int fd, const Audience& audience,
                            uint64_t room, const OnProgress& progress) {
  Report report;
  const auto scopes = take_archive(fd, spool, audience, room, report, progress);
  if (!scopes) return fail(settled(fd, scopes.error()));
  for (const ArchivedScope& one : *scopes) {
    const Result<void> announced = index.announce_scope(one.scope, Deadline::after(kAskPatience));
    if (!announced && announced.error().code() == ErrorCode::kInvalid) {
      report.refused["a scope is none: " + announced.error().what()] += one.entries.size();
      continue;
    }
    if (!announced) return fail(announced.error());
    INDUCTORFS_TRY(ScopeImport(index, spool, one.scope, report).run(one.entries));
    ++report.scopes;
    progress(report);
  }
  return report;
}

}  // namespace inductorfs::archive
