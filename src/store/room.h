// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include "holdings.h"
#include "inductorfs/base/counters.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/store/blob_store.h"

namespace inductorfs::store {

/// The room that blobs may take of the limit and of the disk, and who goes when there is too little. Safe for
/// concurrent use.
class Room {
 public:
  /// `holdings` must outlive this object.
  Room(Holdings& holdings, const StoreOptions& options, Counters& counters);

  /// Reserves `bytes` of the limit, and evicts for it if necessary; release() gives them back. Waits briefly for the
  /// kernel to let go of what it is using.
  [[nodiscard]] Result<void> make(uint64_t bytes);
  [[nodiscard]] Result<void> try_make(uint64_t bytes, bool read_too);
  void release(uint64_t bytes);
  /// Frees disk space, because the disk is full, whatever the store's own limit says.
  uint64_t free_space(uint64_t bytes);
  void keep_floor();
  /// Evicts until `bytes` can be taken from the disk without going below the floor; false when too little yields.
  [[nodiscard]] bool keep_free(uint64_t bytes);
  void set_guard(EvictionGuard guard);

  [[nodiscard]] Error disk_full(const Error& cause) const;
  [[nodiscard]] uint64_t floor() const { return floor_; }
  [[nodiscard]] uint64_t evicted() const { return evicted_here_.load(std::memory_order_relaxed); }

 private:
  enum class Evicted { kYes, kRefused, kElsewhere };
  [[nodiscard]] Evicted evict(const BlobIndex::Victim& victim);
  [[nodiscard]] uint64_t evict_bytes(uint64_t bytes);
  void look_for_room();

  Holdings& holdings_;
  const uint64_t floor_;
  Guarded<std::shared_ptr<const EvictionGuard>> guard_;
  std::atomic<bool> has_reserve_{false};
  std::atomic<bool> has_looked_{false};  ///< for room: what is full when a worker begins stays so
  Counter& without_room_;                ///< 1 while writes find none although the disk shows some
  Counter& evicted_;
  Counter& refused_;
  Counter& floor_evictions_;
  std::atomic<uint64_t> evicted_here_{0};
};

}  // namespace inductorfs::store
