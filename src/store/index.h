// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <unordered_map>

#include "inductorfs/base/clock.h"
#include "inductorfs/codec/digest.h"

namespace inductorfs::store {

class PackedBlob;

struct IndexedBlob {
  uint64_t size = 0;
  WallNanoseconds saved_use = 0;       ///< the last use as the file's atime records it
  uint64_t use = 0;                    ///< grows with each use; an equal value means that the blob was not used since
  bool suspect = false;                ///< not verified since a host crash
  bool read = false;                   ///< its bytes were asked for since it is known, or came from this host
  std::shared_ptr<PackedBlob> packed;  ///< nullptr: the blob is a file of its own
  WallNanoseconds modified = 0;        ///< of such a file: its mtime when its bytes were the blob's
  std::list<codec::Digest>::iterator place;
};

/// The blobs in the store, in order of use, and how much of the limit is taken: a segmented LRU. Who walks a mount (du,
/// a backup's stat) brings blobs in and never reads them; these leave room for what was read, and it for them. The blob
/// files and this index change together, under the lock of the Guarded that holds the index. Needs external
/// synchronisation.
class BlobIndex {
 public:
  explicit BlobIndex(uint64_t size_limit) : size_limit_(size_limit) {}

  struct Victim {
    codec::Digest digest;
    uint64_t size = 0;
    uint64_t use = 0;
  };

  [[nodiscard]] IndexedBlob* find(const codec::Digest& digest);
  /// Inserts a blob as the most recently used; replaces a blob of the same digest.
  IndexedBlob& insert(const codec::Digest& digest, uint64_t size, WallNanoseconds used, bool suspect,
                      std::shared_ptr<PackedBlob> packed = nullptr);
  void erase(const codec::Digest& digest);
  void touch(IndexedBlob& blob);
  /// Its bytes are asked for; a use.
  void mark_read(IndexedBlob& blob);
  void mark_sound(IndexedBlob& blob);
  /// Who goes next: the oldest that was never read, while these are more than a quarter of all bytes, else the oldest
  /// of all. A guard has refused `refused` blobs to the caller: when these are all that were never read, it is nobody,
  /// or with `read_too` the oldest that was read.
  [[nodiscard]] std::optional<Victim> oldest(size_t refused = 0, bool read_too = true) const;

  /// These keep room for blobs that are being written. Before reserve(), fits() must be true.
  [[nodiscard]] bool fits(uint64_t more) const;
  void reserve(uint64_t bytes) { reserved_ += bytes; }
  void release(uint64_t bytes) { reserved_ -= bytes; }

  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  [[nodiscard]] size_t count() const { return blobs_.size(); }
  [[nodiscard]] size_t suspects() const { return suspects_; }
  [[nodiscard]] uint64_t size_limit() const { return size_limit_; }

  bool closed = false;   ///< nothing is added or removed any more
  bool changed = false;  ///< something is to be synced: a blob was added, or dropped from a pack

 private:
  uint64_t size_limit_;
  uint64_t bytes_ = 0;
  uint64_t reserved_ = 0;
  uint64_t next_use_ = 1;
  size_t suspects_ = 0;
  std::unordered_map<codec::Digest, IndexedBlob> blobs_;
  std::list<codec::Digest> unread_;  ///< oldest first
  std::list<codec::Digest> read_;    ///< oldest first
  uint64_t unread_bytes_ = 0;
};

}  // namespace inductorfs::store
