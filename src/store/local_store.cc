// SPDX-License-Identifier: Apache-2.0
#include "local_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "inductorfs/base/fail_point.h"

namespace inductorfs::store {
namespace {

constexpr size_t kCopyPiece = 128ULL * 1024;
/// What is evicted at a time when the disk has no room for a small blob.
constexpr uint64_t kPackRoom = 1ULL << 20;

/// What link(2) answers where it cannot link but a copy can be made: another file system, a file system without links,
/// the limit of links, fs.protected_hardlinks.
bool link_unavailable(ErrorCode code) {
  return code == ErrorCode::kCrossDevice || code == ErrorCode::kNotPermitted || code == ErrorCode::kNotSupported ||
         code == ErrorCode::kInternal;
}

}  // namespace

Result<std::unique_ptr<BlobStore>> BlobStore::open(const StoreOptions& options, Counters& counters) {
  return open_local({options, running_boot_id(), &system_clock()}, counters);
}

Result<std::unique_ptr<BlobStore>> open_local(const LocalStoreOptions& options, Counters& counters) {
  auto directory = own_directory(options.store.directory, options.boot_id, options.store.lock, options.store.patience);
  INDUCTORFS_TRY(directory);
  auto blobs = std::exchange(directory->blobs, {});
  return std::make_unique<LocalStore>(std::move(*directory), std::move(blobs), options, counters);
}

LocalStore::LocalStore(OwnedDirectory directory, std::vector<ScannedBlob> blobs, const LocalStoreOptions& options,
                       Counters& counters)
    : holdings_(std::move(directory), options.store.size_limit, counters),
      room_(holdings_, options.store, counters),
      clock_(*options.clock),
      packed_most_(options.packed_most),
      corrupt_(counters.get("store.corrupt")) {
  read_damage();
  holdings_.index.with([&](BlobIndex& index) {
    for (ScannedBlob& blob : blobs) {
      // Twice there: both have the bytes, and one of them is enough.
      if (blob.packed && index.find(blob.digest) != nullptr) {
        blob.packed->drop();
      } else {
        IndexedBlob& known =
            index.insert(blob.digest, blob.size, blob.used, holdings_.directory.suspect, std::move(blob.packed));
        known.modified = blob.modified;
        index.mark_read(known);  // it may have been
      }
    }
    holdings_.publish_usage(index);
  });
}

LocalStore::~LocalStore() { close(); }

// --- in -----------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<BlobWriter>> LocalStore::create(uint64_t size_hint, Verifier verifier) {
  if (room_.keep_free(size_hint)) return make_writer(*this, size_hint, verifier);
  const std::string floor =
      room_.floor() > 0 ? " above the " + std::to_string(room_.floor()) + " that stay free for others" : "";
  return fail(
      room_.disk_full(Error(ErrorCode::kNoSpace, "no room for " + std::to_string(size_hint) + " bytes" + floor)));
}

bool LocalStore::present_and_used(const codec::Digest& digest) {
  const bool known = holdings_.index.with([&](BlobIndex& index) {
    const IndexedBlob* blob = index.find(digest);
    return blob != nullptr && !blob->suspect;
  });
  return known && locate(digest);
}

Result<codec::Digest> LocalStore::put(std::string_view bytes) {
  const codec::Digest digest = codec::digest_of(bytes);
  if (present_and_used(digest)) return digest;
  auto writer = create(bytes.size());
  INDUCTORFS_TRY(writer);
  INDUCTORFS_TRY((*writer)->append(bytes));
  INDUCTORFS_TRY((*writer)->commit(digest));
  return digest;
}

Result<void> LocalStore::install(const std::string& temporary, const codec::Digest& digest, uint64_t size,
                                 uint64_t reserved) {
  const WallNanoseconds now = clock_.wall_now();
  bool spare = false;
  Holdings::Retired replaced;
  struct stat file {};
  if (::fstatat(holdings_.folder(), temporary.c_str(), &file, AT_SYMLINK_NOFOLLOW) != 0)
    return fail_errno("stat", temporary);
  auto installed = holdings_.index.with([&](BlobIndex& index) -> Result<void> {
    if (index.closed) return holdings_.closed_error();
    IndexedBlob* blob = index.find(digest);
    if (blob != nullptr && !blob->suspect) {
      index.touch(*blob);
      spare = true;
    } else {
      // Over a suspect one too: these bytes have just been verified.
      if (blob != nullptr && blob->packed) replaced = holdings_.retire(index, digest);
      fail_point("store.installing");
      if (auto moved = move_into_place(holdings_.folder(), temporary, digest); !moved) return moved;
      fail_point("store.installed");
      spare = blob != nullptr;  // rename(2) leaves both names when they are links of one file
      index.insert(digest, size, now, false).modified = nanoseconds_of(file.st_mtim);
      index.changed = true;
    }
    index.release(reserved);
    holdings_.publish_usage(index);
    return {};
  });
  if (spare) holdings_.unlink_temporary(temporary);
  holdings_.free_retired(std::move(replaced));
  return installed;
}

Result<void> LocalStore::pack(std::string_view bytes, const codec::Digest& digest, uint64_t reserved) {
  auto place = holdings_.directory.packs->write(bytes);
  while (!place && place.error().code() == ErrorCode::kNoSpace &&
         room_.free_space(std::max(bytes.size(), kPackRoom)) > 0) {
    place = holdings_.directory.packs->write(bytes);
  }
  if (!place && place.error().code() == ErrorCode::kNoSpace) return fail(room_.disk_full(place.error()));
  INDUCTORFS_TRY(place);
  const WallNanoseconds now = clock_.wall_now();
  Holdings::Retired replaced;
  auto packed = holdings_.index.with([&](BlobIndex& index) -> Result<void> {
    if (index.closed) return holdings_.closed_error();
    IndexedBlob* blob = index.find(digest);
    if (blob != nullptr && !blob->suspect) {
      index.touch(*blob);
    } else {
      if (blob != nullptr) replaced = holdings_.retire(index, digest);
      INDUCTORFS_TRY((*place)->record(digest, now));
      fail_point("pack.recorded");
      index.insert(digest, bytes.size(), now, false, *place);
      index.changed = true;
    }
    index.release(reserved);
    holdings_.publish_usage(index);
    return {};
  });
  holdings_.free_retired(std::move(replaced));
  return packed;
}

Result<void> LocalStore::adopt(int dir, const std::string& path, const codec::Digest& digest) {
  struct stat info {};
  if (::fstatat(dir, path.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return fail_errno("stat", path);
  if (!S_ISREG(info.st_mode)) return fail(ErrorCode::kInvalid, "adopt " + path + ": not a regular file");
  if (!present_and_used(digest)) {
    const auto size = static_cast<uint64_t>(info.st_size);
    (void)room_.keep_free(0);  // a link takes nothing from the disk
    INDUCTORFS_TRY(room_.make(size));
    auto linked = link_in(dir, path, digest, size);
    if (!linked) {
      room_.release(size);
      if (!link_unavailable(linked.error().code())) return linked;
      INDUCTORFS_TRY(copy_in(dir, path, digest, size));
    }
  }
  mark_read(digest);
  return {};
}

Result<void> LocalStore::link_in(int dir, const std::string& path, const codec::Digest& digest, uint64_t size) {
  const std::string temporary = holdings_.next_temporary();
  if (::linkat(dir, path.c_str(), holdings_.folder(), temporary.c_str(), 0) != 0) return fail_errno("link", path);
  fail_point("store.linked");
  auto installed = install(temporary, digest, size, size);
  if (!installed) holdings_.unlink_temporary(temporary);
  if (installed) save_use(digest, clock_.wall_now());  // the writer's file may have been read long ago
  return installed;
}

Result<void> LocalStore::copy_in(int dir, const std::string& path, const codec::Digest& digest, uint64_t size) {
  auto source = open_at(dir, path, O_RDONLY | O_NOFOLLOW);
  INDUCTORFS_TRY(source);
  auto writer = create(size);
  INDUCTORFS_TRY(writer);
  std::string piece(kCopyPiece, '\0');
  for (uint64_t offset = 0;;) {
    const auto got = pread_full(source->get(), piece.data(), piece.size(), offset);
    INDUCTORFS_TRY(got);
    INDUCTORFS_TRY((*writer)->append(std::string_view(piece).substr(0, *got)));
    if (*got < piece.size()) return (*writer)->commit(digest);
    offset += *got;
  }
}

// --- the rest -------------------------------------------------------------------------------------------------------

void LocalStore::mark_read(const codec::Digest& digest) {
  holdings_.index.with([&](BlobIndex& index) {
    if (IndexedBlob* blob = index.find(digest)) index.mark_read(*blob);
  });
}

StoreUsage LocalStore::usage() const {
  const Damage damage = damage_.with([](const Damage& now) { return now; });
  return holdings_.index.with([&](const BlobIndex& index) {
    return StoreUsage{index.count(),   index.bytes(), index.size_limit(), room_.floor(),
                      room_.evicted(), damage.times,  damage.last};
  });
}

void LocalStore::close() {
  bool suspects = false;
  bool changed = false;
  const bool first = holdings_.index.with([&](BlobIndex& index) {
    suspects = index.suspects() > 0;
    changed = index.changed;
    return !std::exchange(index.closed, true);
  });
  if (!first) return;
  holdings_.directory.packs->close();
  // Without the mark the next owner verifies blobs that it need not.
  (void)mark_clean(holdings_.directory, suspects, changed);
  // Not closed, so that its number cannot become another file's while a late reader uses it.
  if (!holdings_.directory.shared_lock) (void)::flock(holdings_.directory.lock.get(), LOCK_UN);
}

}  // namespace inductorfs::store
