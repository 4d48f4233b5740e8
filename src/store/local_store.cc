// SPDX-License-Identifier: Apache-2.0
#include "local_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "inductorfs/base/disk_space.h"
#include "inductorfs/base/fail_point.h"

namespace inductorfs::store {
namespace {

/// Refusals that one call bears. A refused blob counts as used, so that the next call asks about others.
constexpr size_t kEvictionTries = 4096;
/// A refusal of the guard asks the kernel to let go of the blob, which it does at once but from another thread: without
/// this patience the first touch after the limit is reached would be a miss although there is room to be had.
constexpr Milliseconds kLetGoPatience{100};
constexpr Milliseconds kLetGoStep{2};
/// The steps after which what was read goes too.
constexpr int kReadTooAfter = 5;
constexpr size_t kCopyPiece = 128ULL * 1024;
/// What is evicted at a time when the disk has no room for a small blob.
constexpr uint64_t kPackRoom = 1ULL << 20;

/// What link(2) answers where it cannot link but a copy can be made: another file system, a file system without links,
/// the limit of links, fs.protected_hardlinks.
bool link_unavailable(ErrorCode code) {
  return code == ErrorCode::kCrossDevice || code == ErrorCode::kNotPermitted || code == ErrorCode::kNotSupported ||
         code == ErrorCode::kInternal;
}

/// The default floor.
constexpr uint64_t kFloorDivisor = 50;
constexpr uint64_t kFloorMost = 1ULL << 30;
constexpr size_t kFruitlessRounds = 8;

uint64_t floor_of(const StoreOptions& options, int folder) {
  if (options.free_floor != StoreOptions::kFloorByDisk) return options.free_floor;
  const auto disk = disk_space(folder);
  return disk ? std::min(disk->f_blocks * disk->f_frsize / kFloorDivisor, kFloorMost) : 0;
}

}  // namespace

Result<std::unique_ptr<BlobStore>> BlobStore::open(const StoreOptions& options, Counters& counters) {
  return open_local({options, running_boot_id(), &system_clock()}, counters);
}

Result<std::unique_ptr<BlobStore>> open_local(const LocalStoreOptions& options, Counters& counters) {
  auto directory = own_directory(options.store.directory, options.boot_id, options.store.lock);
  INDUCTORFS_TRY(directory);
  auto blobs = std::exchange(directory->blobs, {});
  return std::make_unique<LocalStore>(std::move(*directory), std::move(blobs), options, counters);
}

LocalStore::LocalStore(OwnedDirectory directory, std::vector<ScannedBlob> blobs, const LocalStoreOptions& options,
                       Counters& counters)
    : directory_(std::move(directory)),
      clock_(*options.clock),
      floor_(floor_of(options.store, directory_.fd.get())),
      packed_most_(options.packed_most),
      index_(options.store.size_limit),
      without_room_(counters.get("store.without_room")),
      evicted_(counters.get("store.evicted")),
      refused_(counters.get("store.evict_refused")),
      corrupt_(counters.get("store.corrupt")),
      blobs_gauge_(counters.get("store.blobs")),
      bytes_gauge_(counters.get("store.bytes")),
      floor_evictions_(counters.get("store.floor_evictions")) {
  read_damage();
  index_.with([&](Index& index) {
    for (ScannedBlob& blob : blobs) {
      // Twice there: both have the bytes, and one of them is enough.
      if (blob.packed && index.find(blob.digest) != nullptr) {
        blob.packed->drop();
      } else {
        IndexedBlob& known =
            index.insert(blob.digest, blob.size, blob.used, directory_.suspect, std::move(blob.packed));
        known.modified = blob.modified;
        index.mark_read(known);  // it may have been
      }
    }
    publish_usage(index);
  });
}

LocalStore::~LocalStore() { close(); }

void LocalStore::publish_usage(const Index& index) {
  blobs_gauge_.set(index.count());
  bytes_gauge_.set(index.bytes());
}

tl::unexpected<Error> LocalStore::closed_error() const {
  return fail(ErrorCode::kUnavailable, "store " + directory_.path + " is closed");
}

Error LocalStore::disk_full(const Error& cause) const {
  return {ErrorCode::kNoSpace, "store " + directory_.path + ": the disk is full (" + cause.what() +
                                   "); free some space or lower the store's size limit"};
}

std::string LocalStore::next_temporary() {
  return std::string(kTemporaryFolder) + "/" + std::to_string(serial_.fetch_add(1));
}

// --- room ---------------------------------------------------------------------------------------------------------

Result<void> LocalStore::make_room(uint64_t bytes) {
  auto made = try_make_room(bytes, false);
  const Deadline patience = Deadline::after(kLetGoPatience);
  for (int step = 1; !made && made.error().code() == ErrorCode::kNoSpace && !patience.passed(); ++step) {
    std::this_thread::sleep_for(kLetGoStep);
    made = try_make_room(bytes, step >= kReadTooAfter);
  }
  return made;
}

Result<void> LocalStore::try_make_room(uint64_t bytes, bool read_too) {
  if (bytes == 0) return {};
  size_t refusals = 0;
  for (;;) {
    bool reserved = false;
    bool closed = false;
    uint64_t limit = 0;
    size_t count = 0;
    const auto victim = index_.with([&](Index& index) -> std::optional<Index::Victim> {
      closed = index.closed;
      limit = index.size_limit();
      count = index.count();
      if (closed || bytes > limit) return std::nullopt;
      if (index.fits(bytes)) {
        index.reserve(bytes);
        reserved = true;
        return std::nullopt;
      }
      return index.oldest(refusals, read_too);
    });
    if (reserved) return {};
    if (closed) return closed_error();
    if (bytes > limit) {
      return fail(ErrorCode::kTooLarge, "store " + directory_.path + ": " + std::to_string(bytes) +
                                            " bytes in one blob, its limit is " + std::to_string(limit) +
                                            "; raise the store's size limit");
    }
    if (!victim || refusals > std::min(count, kEvictionTries)) {
      return fail(ErrorCode::kNoSpace, "store " + directory_.path + ": its limit of " + std::to_string(limit) +
                                           " bytes is reached and what it holds is in use; raise the size limit");
    }
    if (evict(*victim) == Evicted::kRefused) ++refusals;
  }
}

void LocalStore::release_room(uint64_t bytes) {
  if (bytes == 0) return;
  index_.with([&](Index& index) { index.release(bytes); });
}

uint64_t LocalStore::free_space(uint64_t bytes) {
  const uint64_t freed = evict_bytes(bytes);
  if (freed < bytes && without_room_.get() == 0) look_for_room();
  return freed;
}

void LocalStore::look_for_room() {
  constexpr uint64_t kSome = 1ULL << 20;
  const auto disk = disk_space(folder());
  const bool shows_some = !disk || disk->f_bavail * disk->f_frsize >= kSome;
  without_room_.set(shows_some && !takes_writes(folder()) ? 1 : 0);
}

uint64_t LocalStore::evict_bytes(uint64_t bytes) {
  uint64_t freed = 0;
  size_t refusals = 0;
  while (freed < bytes) {
    size_t count = 0;
    const auto victim = index_.with([&](Index& index) {
      count = index.count();
      return index.closed ? std::nullopt : index.oldest(refusals);
    });
    if (!victim || refusals > std::min(count, kEvictionTries)) break;
    const Evicted evicted = evict(*victim);
    if (evicted == Evicted::kRefused) ++refusals;
    if (evicted == Evicted::kYes) freed += victim->size;
  }
  return freed;
}

LocalStore::Evicted LocalStore::evict(const Index::Victim& victim) {
  const auto guard = guard_.with([](const std::shared_ptr<const EvictionGuard>& current) { return current; });
  const bool allowed = !guard || !*guard || (*guard)(victim.digest);
  if (!allowed) refused_.add();
  Retired retired;
  const bool gone = index_.with([&](Index& index) {
    IndexedBlob* blob = index.find(victim.digest);
    // Used while the guard was asked: its answer is of yesterday.
    if (blob == nullptr || blob->use != victim.use || index.closed) return false;
    if (!allowed) {
      index.touch(*blob);
      return false;
    }
    retired = retire(index, victim.digest);
    return true;
  });
  if (!gone) return allowed ? Evicted::kElsewhere : Evicted::kRefused;
  free_retired(std::move(retired));
  evicted_.add();
  evicted_here_.fetch_add(1, std::memory_order_relaxed);
  return Evicted::kYes;
}

LocalStore::Retired LocalStore::retire(Index& index, const codec::Digest& digest) {
  Retired retired;
  if (const IndexedBlob* blob = index.find(digest)) retired.packed = blob->packed;
  index.erase(digest);
  publish_usage(index);
  if (retired.packed) {
    // The disk must not say "clean" while it has the hole and not the record's mark.
    index.changed = true;
    retired.packed->drop();
    return retired;
  }
  const std::string blob = blob_path(digest);
  struct stat file {};
  if (::fstatat(folder(), blob.c_str(), &file, AT_SYMLINK_NOFOLLOW) == 0 && file.st_nlink > 1) {
    retired.elsewhere = {file.st_ino, static_cast<uint64_t>(file.st_size)};
  }
  retired.temporary = next_temporary();
  // A rename is short; freeing the blocks of a large file is not, and happens without the lock.
  if (::renameat(folder(), blob.c_str(), folder(), retired.temporary.c_str()) == 0) {
    fail_point("store.retired");
    return retired;
  }
  // No room for the name, or gone already: the blob must not come back with the next open.
  (void)::unlinkat(folder(), blob.c_str(), 0);
  retired.temporary.clear();
  return retired;
}

void LocalStore::free_retired(Retired retired) const {
  unlink_temporary(retired.temporary);
  const auto listener = left_listener_.with([](const std::shared_ptr<const LeftListener>& current) { return current; });
  const auto [inode, size] = retired.elsewhere;
  if (inode != 0 && listener && *listener) (*listener)(inode, size);
  retired.packed.reset();  // frees its space, unless somebody still reads it
}

void LocalStore::unlink_temporary(const std::string& name) const {
  // What cannot be unlinked now goes with the next open of the store.
  if (!name.empty()) (void)::unlinkat(folder(), name.c_str(), 0);
  fail_point("store.unlinked");
}

// --- in -----------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<BlobWriter>> LocalStore::create(uint64_t size_hint, Verifier verifier) {
  if (keep_free(size_hint)) return make_writer(*this, size_hint, verifier);
  const std::string floor = floor_ > 0 ? " above the " + std::to_string(floor_) + " that stay free for others" : "";
  return fail(disk_full(Error(ErrorCode::kNoSpace, "no room for " + std::to_string(size_hint) + " bytes" + floor)));
}

bool LocalStore::keep_free(uint64_t bytes) {
  uint64_t before = 0;
  for (size_t fruitless = 0;;) {
    const auto disk = disk_space(folder());
    if (!disk) return true;  // the write itself will tell
    const uint64_t available = disk->f_bavail * disk->f_frsize;
    if (available >= bytes && available - bytes >= floor_) return true;
    // What goes and frees nothing (files that somebody has open, a disk that another fills as fast) is not followed by
    // the whole store.
    if (available <= before && ++fruitless == kFruitlessRounds) return false;
    before = available;
    floor_evictions_.add();
    if (evict_bytes(bytes + floor_ - std::min(available, bytes + floor_)) == 0) return false;
  }
}

bool LocalStore::present_and_used(const codec::Digest& digest) {
  const bool known = index_.with([&](Index& index) {
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
  Retired replaced;
  struct stat file {};
  if (::fstatat(folder(), temporary.c_str(), &file, AT_SYMLINK_NOFOLLOW) != 0) return fail_errno("stat", temporary);
  auto installed = index_.with([&](Index& index) -> Result<void> {
    if (index.closed) return closed_error();
    IndexedBlob* blob = index.find(digest);
    if (blob != nullptr && !blob->suspect) {
      index.touch(*blob);
      spare = true;
    } else {
      // Over a suspect one too: these bytes have just been verified.
      if (blob != nullptr && blob->packed) replaced = retire(index, digest);
      fail_point("store.installing");
      if (auto moved = move_into_place(folder(), temporary, digest); !moved) return moved;
      fail_point("store.installed");
      spare = blob != nullptr;  // rename(2) leaves both names when they are links of one file
      index.insert(digest, size, now, false).modified = nanoseconds_of(file.st_mtim);
      index.changed = true;
    }
    index.release(reserved);
    publish_usage(index);
    return {};
  });
  if (spare) unlink_temporary(temporary);
  free_retired(std::move(replaced));
  return installed;
}

Result<void> LocalStore::pack(std::string_view bytes, const codec::Digest& digest, uint64_t reserved) {
  auto place = directory_.packs->write(bytes);
  while (!place && place.error().code() == ErrorCode::kNoSpace && free_space(std::max(bytes.size(), kPackRoom)) > 0) {
    place = directory_.packs->write(bytes);
  }
  if (!place && place.error().code() == ErrorCode::kNoSpace) return fail(disk_full(place.error()));
  INDUCTORFS_TRY(place);
  const WallNanoseconds now = clock_.wall_now();
  Retired replaced;
  auto packed = index_.with([&](Index& index) -> Result<void> {
    if (index.closed) return closed_error();
    IndexedBlob* blob = index.find(digest);
    if (blob != nullptr && !blob->suspect) {
      index.touch(*blob);
    } else {
      if (blob != nullptr) replaced = retire(index, digest);
      INDUCTORFS_TRY((*place)->record(digest, now));
      fail_point("pack.recorded");
      index.insert(digest, bytes.size(), now, false, *place);
      index.changed = true;
    }
    index.release(reserved);
    publish_usage(index);
    return {};
  });
  free_retired(std::move(replaced));
  return packed;
}

Result<void> LocalStore::adopt(int dir, const std::string& path, const codec::Digest& digest) {
  struct stat info {};
  if (::fstatat(dir, path.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return fail_errno("stat", path);
  if (!S_ISREG(info.st_mode)) return fail(ErrorCode::kInvalid, "adopt " + path + ": not a regular file");
  if (!present_and_used(digest)) {
    const auto size = static_cast<uint64_t>(info.st_size);
    (void)keep_free(0);  // a link takes nothing from the disk
    INDUCTORFS_TRY(make_room(size));
    auto linked = link_in(dir, path, digest, size);
    if (!linked) {
      release_room(size);
      if (!link_unavailable(linked.error().code())) return linked;
      INDUCTORFS_TRY(copy_in(dir, path, digest, size));
    }
  }
  mark_read(digest);
  return {};
}

Result<void> LocalStore::link_in(int dir, const std::string& path, const codec::Digest& digest, uint64_t size) {
  const std::string temporary = next_temporary();
  if (::linkat(dir, path.c_str(), folder(), temporary.c_str(), 0) != 0) return fail_errno("link", path);
  fail_point("store.linked");
  auto installed = install(temporary, digest, size, size);
  if (!installed) unlink_temporary(temporary);
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
  index_.with([&](Index& index) {
    if (IndexedBlob* blob = index.find(digest)) index.mark_read(*blob);
  });
}

void LocalStore::set_eviction_guard(EvictionGuard guard) {
  auto shared = std::make_shared<const EvictionGuard>(std::move(guard));
  guard_.with([&](std::shared_ptr<const EvictionGuard>& current) { current = std::move(shared); });
}

StoreUsage LocalStore::usage() const {
  const Damage damage = damage_.with([](const Damage& now) { return now; });
  return index_.with([&](const Index& index) {
    return StoreUsage{
        index.count(), index.bytes(), index.size_limit(), floor_, evicted_here_.load(std::memory_order_relaxed),
        damage.times,  damage.last};
  });
}

void LocalStore::close() {
  bool suspects = false;
  bool changed = false;
  const bool first = index_.with([&](Index& index) {
    suspects = index.suspects() > 0;
    changed = index.changed;
    return !std::exchange(index.closed, true);
  });
  if (!first) return;
  directory_.packs->close();
  // Without the mark the next owner verifies blobs that it need not.
  (void)mark_clean(directory_, suspects, changed);
  // Not closed, so that its number cannot become another file's while a late reader uses it.
  if (!directory_.shared_lock) (void)::flock(directory_.lock.get(), LOCK_UN);
}

}  // namespace inductorfs::store
