// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/base/result.h"
#include "inductorfs/codec/digest.h"
#include "inductorfs/store/blob_file.h"

/// A pack holds many small blobs in one file: a thousand of them cost a thousand appends, and no file each. Beside the
/// bytes lies an index with a record of fixed size for each blob. Blobs begin at multiples of the disk's blocks, so
/// that an evicted one gives its space back as a hole. docs/formats.md has the layout.
///
/// A record is written after the bytes, and its blob exists from then on, whichever process is killed at whatever
/// moment. Bytes that were written without one are given back by the next open.
namespace inductorfs::store {

inline constexpr const char* kPackFolder = "packs";
inline constexpr uint64_t kPackedMost = BlobFile::kPackedMost;
/// What one pack holds at most.
inline constexpr uint64_t kPackBytes = 256ULL << 20;
inline constexpr uint32_t kPackRecords = 1U << 16;
inline constexpr uint64_t kPackBlock = 4096;
inline constexpr size_t kPackRecordSize = 64;

/// One record of a pack's index, and its codec. Immutable value.
///
///     record := digest offset size state zeros(3) used check zeros(4)     (64 bytes, integers little-endian)
///     digest := 32 bytes     offset := u64     size := u32     state := u8, 1 live, 2 dropped
///     used   := u64, the last use in nanoseconds     check := u32, the CRC-32 of digest, offset and size
struct PackRecord {
  codec::Digest digest;
  uint64_t offset = 0;
  uint64_t size = 0;
  WallNanoseconds used = 0;
  bool live = true;

  static constexpr size_t kStateAt = 44;
  static constexpr size_t kUsedAt = 48;
  static constexpr size_t kCheckAt = 56;
  static constexpr char kLive = 1;
  static constexpr char kDropped = 2;
  [[nodiscard]] std::string encode() const;
  /// Empty when these are not the bytes of a record, or no pack can hold such a blob.
  [[nodiscard]] static std::optional<PackRecord> decode(std::string_view bytes);
};

class PackedBlob;

/// What the packs of one store share: it outlives the store as long as somebody reads a blob. Safe for concurrent use.
struct PackFolder {
  Fd store;
  /// Nothing is freed or removed any more: the directory may be another daemon's.
  Guarded<bool> closed{false};
};

/// Two files in the folder `packs`: "<number>" with the bytes and "<number>.index" with the records. The files are
/// removed when the last blob is dropped. Its calls block on the local disk.
/// Safe for concurrent use.
class Pack : public std::enable_shared_from_this<Pack> {
 public:
  struct Place {
    uint64_t offset = 0;
    uint32_t record = 0;
  };
  struct Files {
    Fd bytes;
    Fd reader;  ///< the bytes, for those who may not write
    Fd index;
  };
  struct Item {
    PackRecord record;
    std::shared_ptr<PackedBlob> blob;
  };

  /// Makes a pack that is not there yet. kNotSupported when the file system cannot free a part of a file.
  [[nodiscard]] static Result<std::shared_ptr<Pack>> make(std::shared_ptr<PackFolder> folder, uint64_t number);
  /// Opens a pack and appends its live blobs to `items`. kNotSupported: a newer release wrote it.
  [[nodiscard]] static Result<std::shared_ptr<Pack>> open(std::shared_ptr<PackFolder> folder, uint64_t number,
                                                          std::vector<Item>& items);
  /// Reads the records of an index, live and dropped ones, with their numbers. kCorrupt: this is no index.
  [[nodiscard]] static Result<std::vector<std::pair<uint32_t, PackRecord>>> read_records(int store, uint64_t number);
  /// Marks a record as dropped, for who owns the store and has not opened its packs.
  [[nodiscard]] static Result<void> drop_record(int store, uint64_t number, uint32_t record);
  [[nodiscard]] static std::string bytes_path(uint64_t number);
  [[nodiscard]] static std::string index_path(uint64_t number);

  /// Takes a place for a blob; nullptr when the pack is full.
  [[nodiscard]] std::shared_ptr<PackedBlob> take_place(uint64_t size);
  /// The pack takes no more blobs.
  void end();

  Pack(std::shared_ptr<PackFolder> folder, uint64_t number, Files files);

 private:
  friend class PackedBlob;
  struct State {
    uint64_t end = 0;      ///< the offset of the next blob
    uint32_t records = 0;  ///< the number of the next record
    uint32_t held = 0;     ///< places that are taken
    bool ended = false;
  };
  void give_back(uint64_t offset, uint64_t size);
  void free_range(uint64_t offset, uint64_t size) const;
  void free_gaps(const std::vector<Item>& live) const;
  void remove_files() const;

  const std::shared_ptr<PackFolder> folder_;
  const uint64_t number_;
  const Files files_;
  Guarded<State> state_;
};

/// A blob's place in a pack. As long as this object lives the bytes stay readable; the space of one that was dropped,
/// or never recorded, is freed with it. Its calls block on the local disk. Safe for concurrent use.
class PackedBlob : public std::enable_shared_from_this<PackedBlob> {
 public:
  PackedBlob(std::shared_ptr<Pack> pack, Pack::Place place, uint64_t size, bool recorded)
      : pack_(std::move(pack)), place_(place), size_(size), recorded_(recorded) {}
  ~PackedBlob();
  PackedBlob(const PackedBlob&) = delete;
  PackedBlob& operator=(const PackedBlob&) = delete;

  [[nodiscard]] Result<void> write(std::string_view bytes) const;
  /// From here on the next open of the store finds the blob.
  [[nodiscard]] Result<void> record(const codec::Digest& digest, WallNanoseconds used);
  void save_use(WallNanoseconds used) const;
  /// The next open of the store does not find the blob any more.
  void drop();
  /// kNotFound when the pack's file has been cut below the blob's end.
  [[nodiscard]] Result<BlobFile> open() const;

 private:
  const std::shared_ptr<Pack> pack_;
  const Pack::Place place_;
  const uint64_t size_;
  std::atomic<bool> recorded_;
};

/// All packs of a store, to which blobs are appended. Its calls block on the local disk. Safe for concurrent use.
class Packs {
 public:
  /// `store` is copied.
  explicit Packs(int store);
  ~Packs() { close(); }
  Packs(const Packs&) = delete;
  Packs& operator=(const Packs&) = delete;
  /// Opens the packs that are there, and appends their live blobs to `items`. What cannot be read is left alone for
  /// `inductorfs check`; half a pack is removed.
  [[nodiscard]] Result<void> open(std::vector<Pack::Item>& items);
  /// Writes the bytes of a blob to a place that the next open does not know yet. kNotSupported: this file system can
  /// hold no packs; kNoSpace and others: the disk's.
  [[nodiscard]] Result<std::shared_ptr<PackedBlob>> write(std::string_view bytes);
  /// Frees nothing from here on.
  void close();

 private:
  struct State {
    std::shared_ptr<Pack> current;
    uint64_t next_number = 1;
  };
  [[nodiscard]] Result<std::shared_ptr<PackedBlob>> take_place(uint64_t size);

  const std::shared_ptr<PackFolder> folder_;
  std::atomic<bool> usable_{true};
  Guarded<State> state_;
};

/// The number in the name of a pack's file, or of its index.
[[nodiscard]] std::optional<uint64_t> pack_number(std::string_view name);

}  // namespace inductorfs::store
