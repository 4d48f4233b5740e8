// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>

#include <utility>

#include "inductorfs/base/log.h"
#include "local_store.h"

namespace inductorfs::store {
namespace {

/// The order of use survives a restart to this precision; more would be a write for each read.
constexpr WallNanoseconds kSaveUseAfter = 3600LL * 1'000'000'000;
constexpr int64_t kNanoseconds = 1'000'000'000;

}  // namespace

std::optional<BlobInfo> LocalStore::find(const codec::Digest& digest) {
  const auto blob = locate(digest);
  if (!blob) return std::nullopt;
  return BlobInfo{digest, blob->size};
}

std::optional<LocalStore::Located> LocalStore::locate(const codec::Digest& digest) {
  const WallNanoseconds now = clock_.wall_now();
  bool save = false;
  auto located = index_.with([&](Index& index) -> std::optional<Located> {
    IndexedBlob* blob = index.find(digest);
    if (blob == nullptr) return std::nullopt;
    index.touch(*blob);
    // Both ways: a clock that was set back must not keep a use from being saved for years.
    save = now - blob->saved_use > kSaveUseAfter || blob->saved_use - now > kSaveUseAfter;
    if (save) blob->saved_use = now;
    return Located{blob->size, blob->packed, blob->modified, blob->suspect};
  });
  const bool doubtful = located && (located->suspect || !is_untouched(digest, *located));
  if (doubtful && !verify(digest, *located)) return std::nullopt;
  if (!located || !save) return located;
  if (located->packed) {
    located->packed->save_use(now);
  } else {
    save_use(digest, now);
  }
  return located;
}

void LocalStore::save_use(const codec::Digest& digest, WallNanoseconds now) const {
  timespec times[2] = {};  // NOLINT(modernize-avoid-c-arrays): utimensat's signature
  times[0].tv_sec = now / kNanoseconds;
  times[0].tv_nsec = now % kNanoseconds;
  times[1].tv_nsec = UTIME_OMIT;
  // Lost: after a restart the blob looks older than it is.
  (void)::utimensat(folder(), blob_path(digest).c_str(), times, 0);
}

bool LocalStore::is_untouched(const codec::Digest& digest, const Located& blob) const {
  if (blob.packed) return true;  // nobody else has a name of that file
  struct stat file {};
  if (::fstatat(folder(), blob_path(digest).c_str(), &file, AT_SYMLINK_NOFOLLOW) != 0) return errno != ENOENT;
  return static_cast<uint64_t>(file.st_size) == blob.size && nanoseconds_of(file.st_mtim) == blob.modified;
}

bool LocalStore::verify(const codec::Digest& digest, const Located& blob) {
  const auto file = open_located(digest, blob);
  if (!file && file.error().code() != ErrorCode::kNotFound) return false;  // the disk cannot tell at this moment
  struct stat before {};
  const bool is_whole = file && ::fstat(file->file(), &before) == 0 &&
                        (blob.packed || static_cast<uint64_t>(before.st_size) == blob.size);
  const auto actual = is_whole ? file->digest() : fail(ErrorCode::kCorrupt, "another size");
  const bool sound = actual && *actual == digest;
  const bool is_damaged = file && !sound && (actual || actual.error().code() == ErrorCode::kCorrupt);
  if (is_damaged) tell_damage(digest, blob, *file);  // what cannot be read may be sound
  Retired retired;
  const bool kept = index_.with([&](Index& index) {
    IndexedBlob* now = index.find(digest);
    if (now == nullptr) return false;
    // Another thread verified it, or put good bytes in its place.
    if (now->suspect != blob.suspect || now->modified != blob.modified) return true;
    if (sound) {
      index.mark_sound(*now);
      now->modified = blob.packed ? 0 : nanoseconds_of(before.st_mtim);
      return true;
    }
    if (index.closed) return false;
    retired = retire(index, digest);
    corrupt_.add();
    return false;
  });
  free_retired(std::move(retired));
  if (kept || sound) return kept;
  log::write_limited(log::Level::kError, "store.changed", {{"digest", digest.to_hex()}});
  return false;
}

Result<BlobFile> LocalStore::open_located(const codec::Digest& digest, const Located& blob) const {
  if (blob.packed) return blob.packed->open();
  INDUCTORFS_TRY_ASSIGN(auto fd, open_at(folder(), blob_path(digest), O_RDONLY | O_NOFOLLOW));
  return BlobFile(std::move(fd), 0, blob.size);
}

Result<BlobFile> LocalStore::open_blob(const codec::Digest& digest) {
  const auto blob = locate(digest);
  if (!blob) return fail(ErrorCode::kNotFound);
  auto file = open_located(digest, *blob);
  if (!file && file.error().code() == ErrorCode::kNotFound) drop_if_gone(digest);
  return file;
}

/// Usually it has been evicted just now and is not in the index either. If it is, somebody else has been at our files,
/// and the index must not go on promising it.
void LocalStore::drop_if_gone(const codec::Digest& digest) {
  Retired retired;
  index_.with([&](Index& index) {
    const IndexedBlob* blob = index.find(digest);
    if (blob == nullptr || index.closed) return;
    const auto file = open_located(digest, {blob->size, blob->packed});
    if (file || file.error().code() != ErrorCode::kNotFound) return;
    retired = retire(index, digest);
    corrupt_.add();
  });
  free_retired(std::move(retired));
}

}  // namespace inductorfs::store
