// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>

#include <utility>

#include "inductorfs/base/log.h"
#include "inductorfs/base/number.h"
#include "local_store.h"

namespace inductorfs::store {
namespace {

/// The order of use survives a restart to this precision; more would be a write for each read.
constexpr WallNanoseconds kSaveUseAfter = 3600LL * 1'000'000'000;
constexpr int64_t kNanoseconds = 1'000'000'000;
constexpr uint64_t kNoteLimit = 64;

}  // namespace

std::optional<BlobInfo> LocalStore::find(const codec::Digest& digest) {
  const auto blob = locate(digest);
  if (!blob) return std::nullopt;
  return BlobInfo{digest, blob->size};
}

std::optional<LocalStore::Located> LocalStore::locate(const codec::Digest& digest) {
  const WallNanoseconds now = clock_.wall_now();
  bool save = false;
  auto located = holdings_.index.with([&](BlobIndex& index) -> std::optional<Located> {
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
  (void)::utimensat(holdings_.folder(), blob_path(digest).c_str(), times, 0);
}

bool LocalStore::is_untouched(const codec::Digest& digest, const Located& blob) const {
  if (blob.packed) return true;  // nobody else has a name of that file
  struct stat file {};
  if (::fstatat(holdings_.folder(), blob_path(digest).c_str(), &file, AT_SYMLINK_NOFOLLOW) != 0) return errno != ENOENT;
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
  Holdings::Retired retired;
  const bool kept = holdings_.index.with([&](BlobIndex& index) {
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
    retired = holdings_.retire(index, digest);
    corrupt_.add();
    return false;
  });
  holdings_.free_retired(std::move(retired));
  if (kept || sound) return kept;
  log::write_limited(log::Level::kError, "store.changed", {{"digest", digest.to_hex()}});
  return false;
}

Result<BlobFile> LocalStore::open_located(const codec::Digest& digest, const Located& blob) const {
  if (blob.packed) return blob.packed->open();
  INDUCTORFS_TRY_ASSIGN(auto fd, open_at(holdings_.folder(), blob_path(digest), O_RDONLY | O_NOFOLLOW));
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
  Holdings::Retired retired;
  holdings_.index.with([&](BlobIndex& index) {
    const IndexedBlob* blob = index.find(digest);
    if (blob == nullptr || index.closed) return;
    const auto file = open_located(digest, {blob->size, blob->packed});
    if (file || file.error().code() != ErrorCode::kNotFound) return;
    retired = holdings_.retire(index, digest);
    corrupt_.add();
  });
  holdings_.free_retired(std::move(retired));
}

// --- bytes that are not those that were written ---

void LocalStore::read_damage() {
  const std::string text = read_file(holdings_.folder(), kDamageFile, kNoteLimit).value_or("");
  const size_t space = text.find(' ');
  if (space == std::string::npos) return;
  damage_.with([&](Damage& damage) {
    damage = {leading_number<uint64_t>(text), leading_number<int64_t>(std::string_view(text).substr(space + 1))};
  });
}

void LocalStore::note_damage() {
  damage_.with([&](Damage& damage) {
    damage = {damage.times + 1, clock_.wall_now() / kNanoseconds};
    const std::string text = std::to_string(damage.times) + " " + std::to_string(damage.last) + "\n";
    (void)write_file_atomically(holdings_.folder(), kDamageFile, text);  // without it the next process does not know
  });
}

void LocalStore::set_damage_listener(DamageListener listener) {
  auto shared = std::make_shared<const DamageListener>(std::move(listener));
  listener_.with([&](std::shared_ptr<const DamageListener>& current) { current = std::move(shared); });
}

/// Before the blob goes, so that whoever is killed in between leaves the blob, or the listener's mark on its inode.
void LocalStore::tell_damage(const codec::Digest& digest, const Located& blob, const BlobFile& file) {
  if (!blob.suspect) note_damage();  // a crash of the host loses bytes of sound disks
  const auto listener = listener_.with([](const std::shared_ptr<const DamageListener>& current) { return current; });
  if (listener && *listener) (*listener)(digest, blob.packed ? -1 : file.file());
}

void LocalStore::discard(const codec::Digest& digest) {
  const auto blob = holdings_.index.with([&](BlobIndex& index) -> std::optional<Located> {
    const IndexedBlob* known = index.closed ? nullptr : index.find(digest);
    return known == nullptr ? std::nullopt
                            : std::optional(Located{known->size, known->packed, known->modified, known->suspect});
  });
  if (!blob) return;
  corrupt_.add();
  if (const auto file = open_located(digest, *blob)) tell_damage(digest, *blob, *file);
  drop(digest);
}

void LocalStore::drop(const codec::Digest& digest) {
  Holdings::Retired retired;
  holdings_.index.with([&](BlobIndex& index) {
    if (!index.closed && index.find(digest) != nullptr) retired = holdings_.retire(index, digest);
  });
  holdings_.free_retired(std::move(retired));
}

}  // namespace inductorfs::store
