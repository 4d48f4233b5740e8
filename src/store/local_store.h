// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "holdings.h"
#include "inductorfs/base/counters.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/store/blob_store.h"
#include "room.h"

namespace inductorfs::store {

/// The options of a store, with what tests set by hand.
struct LocalStoreOptions {
  StoreOptions store;
  std::string boot_id;
  const Clock* clock = nullptr;
  uint64_t packed_most = kPackedMost;  ///< larger blobs are files of their own; 0: all are
};

[[nodiscard]] Result<std::unique_ptr<BlobStore>> open_local(const LocalStoreOptions& options, Counters& counters);

/// The BlobStore of one directory. Reading, writing, hashing and unlinking happen without the index's lock. Safe for
/// concurrent use.
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
  void set_eviction_guard(EvictionGuard guard) override { room_.set_guard(std::move(guard)); }
  void set_damage_listener(DamageListener listener) override;
  void set_left_listener(LeftListener listener) override { holdings_.set_left_listener(std::move(listener)); }
  StoreUsage usage() const override;
  int lock() const override { return holdings_.directory.lock.get(); }
  void close() override;

  uint64_t free_space(uint64_t bytes) override { return room_.free_space(bytes); }
  void keep_floor() override { room_.keep_floor(); }

  // ---- for the writer
  [[nodiscard]] Holdings& holdings() { return holdings_; }
  [[nodiscard]] Room& room() { return room_; }
  /// Moves a finished temporary file to its place, and turns its reservation into the blob's size.
  [[nodiscard]] Result<void> install(const std::string& temporary, const codec::Digest& digest, uint64_t size,
                                     uint64_t reserved);
  /// Puts a small blob into a pack, and turns its reservation into the blob's size. kNotSupported when there can be no
  /// packs here.
  [[nodiscard]] Result<void> pack(std::string_view bytes, const codec::Digest& digest, uint64_t reserved);
  [[nodiscard]] bool is_packed_size(uint64_t size) const { return packed_most_ > 0 && size <= packed_most_; }

 private:
  /// A blob of the index with where it lies, as a use; empty when it is absent or was damaged.
  struct Located {
    uint64_t size = 0;
    std::shared_ptr<PackedBlob> packed;
    WallNanoseconds modified = 0;
    bool suspect = false;
  };
  [[nodiscard]] std::optional<Located> locate(const codec::Digest& digest);
  [[nodiscard]] Result<BlobFile> open_located(const codec::Digest& digest, const Located& blob) const;
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

  Holdings holdings_;
  Room room_;
  const Clock& clock_;
  const uint64_t packed_most_;
  Guarded<std::shared_ptr<const DamageListener>> listener_;
  struct Damage {
    uint64_t times = 0;
    int64_t last = 0;  ///< seconds since 1970
  };
  Guarded<Damage> damage_;
  Counter& corrupt_;
};

[[nodiscard]] Result<std::unique_ptr<BlobWriter>> make_writer(LocalStore& store, uint64_t size_hint, Verifier verifier);

}  // namespace inductorfs::store
