// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "directory.h"
#include "index.h"
#include "inductorfs/base/counters.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/store/blob_store.h"
#include "pack.h"

namespace inductorfs::store {

/// The options of a store, with what tests set by hand.
struct LocalStoreOptions {
  StoreOptions store;
  std::string boot_id;
  const Clock* clock = nullptr;
  uint64_t packed_most = kPackedMost;  ///< larger blobs are files of their own; 0: all are
};

[[nodiscard]] Result<std::unique_ptr<BlobStore>> open_local(const LocalStoreOptions& options, Counters& counters);

/// The BlobStore of one directory. Blobs and the index change together under the index's lock, by renames, links and
/// records of packs only: reading, writing, hashing and unlinking happen without it. Safe for concurrent use.
class LocalStore final : public BlobStore {
 public:
  LocalStore(OwnedDirectory directory, std::vector<ScannedBlob> blobs, const LocalStoreOptions& options,
             Counters& counters);
  ~LocalStore() override;

  using BlobStore::create;
  Result<std::unique_ptr<BlobWriter>> create(uint64_t size_hint, Verifier verifier) override;
  Result<codec::Digest> put(std::string_view bytes) override;
  Result<void> adopt(int dir, const std::string& path, const codec::Digest& digest) override;
  std::optional<BlobInfo> find(const codec::Digest& digest) override;
  Result<BlobFile> open_blob(const codec::Digest& digest) override;
  void mark_read(const codec::Digest& digest) override;
  void discard(const codec::Digest& digest) override;
  void drop(const codec::Digest& digest) override;
  void note_damage() override;
  void set_eviction_guard(EvictionGuard guard) override;
  void set_damage_listener(DamageListener listener) override;
  void set_left_listener(LeftListener listener) override;
  StoreUsage usage() const override;
  int lock() const override { return directory_.lock.get(); }
  void close() override;

  // ---- for the writer
  [[nodiscard]] int folder() const { return directory_.fd.get(); }
  /// Reserves `bytes` of the limit, and evicts for it if necessary; release_room() gives them back. Waits briefly for
  /// the kernel to let go of what it is using.
  [[nodiscard]] Result<void> make_room(uint64_t bytes);
  [[nodiscard]] Result<void> try_make_room(uint64_t bytes, bool read_too);
  void release_room(uint64_t bytes);
  /// Frees disk space, because the disk is full, whatever the store's own limit says.
  uint64_t free_space(uint64_t bytes) override;
  void keep_floor() override {
    (void)keep_free(0);
    if (!has_looked_.exchange(true) || without_room_.get() > 0) look_for_room();
    if (!has_reserve_) has_reserve_ = keep_reserve(folder());
  }
  /// Moves a finished temporary file to its place, and turns its reservation into the blob's size.
  [[nodiscard]] Result<void> install(const std::string& temporary, const codec::Digest& digest, uint64_t size,
                                     uint64_t reserved);
  /// Puts a small blob into a pack, and turns its reservation into the blob's size. kNotSupported when there can be no
  /// packs here.
  [[nodiscard]] Result<void> pack(std::string_view bytes, const codec::Digest& digest, uint64_t reserved);
  [[nodiscard]] bool is_packed_size(uint64_t size) const { return packed_most_ > 0 && size <= packed_most_; }
  [[nodiscard]] std::string next_temporary();
  [[nodiscard]] Error disk_full(const Error& cause) const;

 private:
  enum class Evicted { kYes, kRefused, kElsewhere };
  [[nodiscard]] Evicted evict(const Index::Victim& victim);
  /// A blob that no open finds any more, and whose space is still to be freed, without the lock.
  struct Retired {
    std::string temporary;                          ///< the name that its file has until it is unlinked; empty: none
    std::shared_ptr<PackedBlob> packed;             ///< nullptr: it is in no pack
    std::pair<uint64_t, uint64_t> elsewhere{0, 0};  ///< its inode and size, where that has other names
  };
  /// Removes the blob from index and disk, under the lock.
  [[nodiscard]] Retired retire(Index& index, const codec::Digest& digest);
  void free_retired(Retired retired) const;
  void unlink_temporary(const std::string& name) const;
  /// A blob of the index with where it lies, as a use; empty when it is absent or was damaged.
  struct Located {
    uint64_t size = 0;
    std::shared_ptr<PackedBlob> packed;
    WallNanoseconds modified = 0;
    bool suspect = false;
  };
  [[nodiscard]] std::optional<Located> locate(const codec::Digest& digest);
  [[nodiscard]] Result<BlobFile> open_located(const codec::Digest& digest, const Located& blob) const;
  [[nodiscard]] uint64_t evict_bytes(uint64_t bytes);
  void look_for_room();
  /// Evicts until `bytes` can be taken from the disk without going below the floor; false when too little yields.
  [[nodiscard]] bool keep_free(uint64_t bytes);
  void drop_if_gone(const codec::Digest& digest);
  /// Tells the listener of a blob that was found damaged in this file, before it goes.
  void tell_damage(const codec::Digest& digest, const Located& blob, const BlobFile& file);
  void read_damage();
  [[nodiscard]] bool verify(const codec::Digest& digest, const Located& blob);
  /// Says whether the blob's file has the size and the mtime that it had when its bytes were the blob's.
  [[nodiscard]] bool is_untouched(const codec::Digest& digest, const Located& blob) const;
  void save_use(const codec::Digest& digest, WallNanoseconds now) const;
  [[nodiscard]] bool present_and_used(const codec::Digest& digest);
  [[nodiscard]] Result<void> link_in(int dir, const std::string& path, const codec::Digest& digest, uint64_t size);
  [[nodiscard]] Result<void> copy_in(int dir, const std::string& path, const codec::Digest& digest, uint64_t size);
  [[nodiscard]] tl::unexpected<Error> closed_error() const;
  void publish_usage(const Index& index);

  const OwnedDirectory directory_;
  const Clock& clock_;
  const uint64_t floor_;
  const uint64_t packed_most_;
  Guarded<Index> index_;
  Guarded<std::shared_ptr<const EvictionGuard>> guard_;
  Guarded<std::shared_ptr<const DamageListener>> listener_;
  Guarded<std::shared_ptr<const LeftListener>> left_listener_;
  struct Damage {
    uint64_t times = 0;
    int64_t last = 0;  ///< seconds since 1970
  };
  Guarded<Damage> damage_;
  std::atomic<uint64_t> serial_{0};
  std::atomic<bool> has_reserve_{false};
  std::atomic<bool> has_looked_{false};  ///< for room: what is full when a worker begins stays so
  Counter& without_room_;                ///< 1 while writes find none although the disk shows some
  Counter& evicted_;
  Counter& refused_;
  Counter& corrupt_;
  Counter& blobs_gauge_;
  Counter& bytes_gauge_;
  Counter& floor_evictions_;
  std::atomic<uint64_t> evicted_here_{0};
};

[[nodiscard]] Result<std::unique_ptr<BlobWriter>> make_writer(LocalStore& store, uint64_t size_hint, Verifier verifier);

}  // namespace inductorfs::store
