// SPDX-License-Identifier: Apache-2.0
#include "room.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "inductorfs/base/disk_space.h"

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

Room::Room(Holdings& holdings, const StoreOptions& options, Counters& counters)
    : holdings_(holdings),
      floor_(floor_of(options, holdings.folder())),
      without_room_(counters.get("store.without_room")),
      evicted_(counters.get("store.evicted")),
      refused_(counters.get("store.evict_refused")),
      floor_evictions_(counters.get("store.floor_evictions")) {}

Result<void> Room::make(uint64_t bytes) {
  auto made = try_make(bytes, false);
  const Deadline patience = Deadline::after(kLetGoPatience);
  for (int step = 1; !made && made.error().code() == ErrorCode::kNoSpace && !patience.passed(); ++step) {
    std::this_thread::sleep_for(kLetGoStep);
    made = try_make(bytes, step >= kReadTooAfter);
  }
  return made;
}

Result<void> Room::try_make(uint64_t bytes, bool read_too) {
  if (bytes == 0) return {};
  size_t refusals = 0;
  for (;;) {
    bool reserved = false;
    bool closed = false;
    uint64_t limit = 0;
    size_t count = 0;
    const auto victim = holdings_.index.with([&](BlobIndex& index) -> std::optional<BlobIndex::Victim> {
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
    if (closed) return holdings_.closed_error();
    if (bytes > limit) {
      return fail(ErrorCode::kTooLarge, "store " + holdings_.directory.path + ": " + std::to_string(bytes) +
                                            " bytes in one blob, its limit is " + std::to_string(limit) +
                                            "; raise the store's size limit");
    }
    if (!victim || refusals > std::min(count, kEvictionTries)) {
      return fail(ErrorCode::kNoSpace, "store " + holdings_.directory.path + ": its limit of " + std::to_string(limit) +
                                           " bytes is reached and what it holds is in use; raise the size limit");
    }
    if (evict(*victim) == Evicted::kRefused) ++refusals;
  }
}

void Room::release(uint64_t bytes) {
  if (bytes == 0) return;
  holdings_.index.with([&](BlobIndex& index) { index.release(bytes); });
}

uint64_t Room::free_space(uint64_t bytes) {
  const uint64_t freed = evict_bytes(bytes);
  if (freed < bytes && without_room_.get() == 0) look_for_room();
  return freed;
}

void Room::look_for_room() {
  constexpr uint64_t kSome = 1ULL << 20;
  const auto disk = disk_space(holdings_.folder());
  const bool shows_some = !disk || disk->f_bavail * disk->f_frsize >= kSome;
  without_room_.set(shows_some && !takes_writes(holdings_.folder()) ? 1 : 0);
}

uint64_t Room::evict_bytes(uint64_t bytes) {
  uint64_t freed = 0;
  size_t refusals = 0;
  while (freed < bytes) {
    size_t count = 0;
    const auto victim = holdings_.index.with([&](BlobIndex& index) {
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

Room::Evicted Room::evict(const BlobIndex::Victim& victim) {
  const auto guard = guard_.with([](const std::shared_ptr<const EvictionGuard>& current) { return current; });
  const bool allowed = !guard || !*guard || (*guard)(victim.digest);
  if (!allowed) refused_.add();
  Holdings::Retired retired;
  const bool gone = holdings_.index.with([&](BlobIndex& index) {
    IndexedBlob* blob = index.find(victim.digest);
    // Used while the guard was asked: its answer is of yesterday.
    if (blob == nullptr || blob->use != victim.use || index.closed) return false;
    if (!allowed) {
      index.touch(*blob);
      return false;
    }
    retired = holdings_.retire(index, victim.digest);
    return true;
  });
  if (!gone) return allowed ? Evicted::kElsewhere : Evicted::kRefused;
  holdings_.free_retired(std::move(retired));
  evicted_.add();
  evicted_here_.fetch_add(1, std::memory_order_relaxed);
  return Evicted::kYes;
}

bool Room::keep_free(uint64_t bytes) {
  uint64_t before = 0;
  for (size_t fruitless = 0;;) {
    const auto disk = disk_space(holdings_.folder());
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

void Room::set_guard(EvictionGuard guard) {
  auto shared = std::make_shared<const EvictionGuard>(std::move(guard));
  guard_.with([&](std::shared_ptr<const EvictionGuard>& current) { current = std::move(shared); });
}

Error Room::disk_full(const Error& cause) const {
  return {ErrorCode::kNoSpace, "store " + holdings_.directory.path + ": the disk is full (" + cause.what() +
                                   "); free some space or lower the store's size limit"};
}

void Room::keep_floor() {
  (void)keep_free(0);
  if (!has_looked_.exchange(true) || without_room_.get() > 0) look_for_room();
  if (!has_reserve_) has_reserve_ = keep_reserve(holdings_.folder());
}

}  // namespace inductorfs::store
