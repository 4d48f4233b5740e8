// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/counters.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"
#include "inductorfs/codec/digest.h"

/// Blobs on the local disk, by digest. A blob is there whole and with the right bytes, or not at all, whatever was
/// killed when; docs/formats.md has the layout.
namespace inductorfs::store {

struct StoreOptions {
  std::string directory;
  uint64_t size_limit = 20ULL << 30;  ///< bytes of all blobs; eviction keeps below it
  /// The smaller of 2 % of the disk and 1 GiB.
  static constexpr uint64_t kFloorByDisk = UINT64_MAX;
  uint64_t free_floor = 0;  ///< bytes that stay free on the disk for others; eviction keeps above it
  /// What lock() of an earlier store of this directory gave; others hold it too, so that close() does not free it.
  /// Stays the caller's. -1, or not of this directory: the store locks it itself.
  int lock = -1;
};

/// Asked before a blob is evicted. Answers true when nothing on this host needs the blob any more: no inode that the
/// kernel knows shows it, and what it belongs to has been published or dropped. May take its own locks; called with no
/// lock of the store held. A blob that is used while its guard is asked stays. A caller that relies on a blob first
/// makes the guard refuse it and then finds it: found in that order, it stays.
using EvictionGuard = std::function<bool(const codec::Digest&)>;

/// One artefact on its way into the store. Abandoned (nothing is left behind) unless commit() answered success; after
/// an error it has ended. Must not outlive its store.
/// Needs external synchronisation.
class BlobWriter {
 public:
  virtual ~BlobWriter() = default;
  [[nodiscard]] virtual Result<void> append(std::string_view bytes) = 0;
  /// kCorrupt when what was written is not `expected`. A blob that is there already is success, and its bytes stay.
  [[nodiscard]] virtual Result<void> commit(const codec::Digest& expected) = 0;
};

struct BlobInfo {
  codec::Digest digest;
  uint64_t size = 0;
};

struct StoreUsage {
  uint64_t blobs = 0;
  uint64_t bytes = 0;
  uint64_t size_limit = 0;
  uint64_t free_floor = 0;
  uint64_t evicted = 0;
};

/// Blocks on the local disk. Safe for concurrent use. One process at a time owns a store directory (an flock on it).
class BlobStore {
 public:
  virtual ~BlobStore() = default;

  /// Creates the directory if it is missing. Errors, each with its remedy in the text: kBusy (another daemon has it),
  /// kReadOnly or kNotPermitted (cannot write), kNoSpace, kNotSupported (made by a newer version), kCorrupt (its
  /// marker is damaged), kInvalid (not a store and not empty: it is left alone). Temporary files of an earlier life are
  /// removed. After a host crash (another boot id and no clean close) blobs are suspect: each is verified at its first
  /// use and dropped when it is damaged.
  [[nodiscard]] static Result<std::unique_ptr<BlobStore>> open(const StoreOptions& options, Counters& counters);

  /// Evicts first when the limit is near: least recently used, asking the guard. `size_hint` reserves; kNoSpace when
  /// the disk (down to the floor) or the limit has no room that the guard yields, kTooLarge when the blob alone is over
  /// the limit.
  [[nodiscard]] virtual Result<std::unique_ptr<BlobWriter>> create(uint64_t size_hint) = 0;
  [[nodiscard]] virtual Result<codec::Digest> put(std::string_view bytes) = 0;
  /// Takes a finished local file in as a blob by hard link, without copying; the caller has computed the digest and
  /// promises not to write to that inode again. Falls back to a copy when links are not possible. Evicts and fails as
  /// create() does.
  [[nodiscard]] virtual Result<void> adopt(int dir, const std::string& path, const codec::Digest& digest) = 0;

  /// Whether the blob is here (and, after a host crash, sound). Marks it as used.
  [[nodiscard]] virtual std::optional<BlobInfo> find(const codec::Digest& digest) = 0;
  /// A read-only descriptor; stays readable after eviction. kNotFound when absent.
  [[nodiscard]] virtual Result<Fd> open_blob(const codec::Digest& digest) = 0;
  /// Drops a blob whatever the guard says: it was found to be damaged.
  virtual void discard(const codec::Digest& digest) = 0;

  /// Evicts about `bytes` now, because the disk is full for somebody else's write; answers what was freed.
  virtual uint64_t free_space(uint64_t bytes) = 0;

  /// Evicts until as much of the disk is free as the options say: somebody else may have filled it.
  virtual void keep_floor() {}

  virtual void set_eviction_guard(EvictionGuard guard) = 0;
  [[nodiscard]] virtual StoreUsage usage() const = 0;
  /// The descriptor whose flock keeps other daemons out: who holds a copy of it keeps them out for longer than this
  /// object lives. Closed with the store; -1: there is none.
  [[nodiscard]] virtual int lock() const { return -1; }
  /// Syncs what was added to disk, marks a clean close and lets go of the directory; the destructor does it too. From
  /// then on nothing is added, evicted or discarded (kUnavailable).
  virtual void close() = 0;
};

}  // namespace inductorfs::store
