// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/counters.h"
#include "inductorfs/base/defaults.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"
#include "inductorfs/codec/digest.h"
#include "inductorfs/store/blob_file.h"

/// Blobs on the local disk, by digest. A blob is there whole and with the right bytes, or not at all, whichever process
/// was killed at whatever moment; docs/formats.md has the layout.
namespace inductorfs::store {

struct StoreOptions {
  std::string directory;
  uint64_t size_limit = defaults::kStoreBytes;  ///< bytes of all blobs; eviction keeps the store below it
  /// A value of `free_floor`: the smaller of 2 % of the disk and 1 GiB.
  static constexpr uint64_t kFloorByDisk = UINT64_MAX;
  uint64_t free_floor = 0;  ///< bytes of the disk that eviction keeps free for others
  /// The descriptor that lock() of an earlier store of this directory returned. Other processes hold it too, so close()
  /// does not free the lock. The caller keeps owning it. If it is -1, or not of this directory, the store takes a lock
  /// itself.
  int lock = -1;
  /// How long a store is waited for whose owner has said that it ends (say_end()); one that has not is waited for for
  /// two seconds of it.
  Milliseconds patience{};
};

/// Writes beside this lock, of BlobStore::lock(), that its owner frees it soon.
void say_end(int lock);

/// Decides whether a blob may be evicted. True means that nothing on this host needs the blob any more: no inode that
/// the kernel knows shows it, and the entries or groups that it belongs to have been published or dropped. The guard
/// may take its own locks; the store holds none of its own when it calls. A blob that is used while its guard is asked
/// stays. A caller that relies on a blob first makes the guard refuse it and then calls find(): a blob that is found in
/// that order stays.
using EvictionGuard = std::function<bool(const codec::Digest&)>;

/// Is told of a blob whose bytes are not those that were written, just before it goes. `file` is open on its inode,
/// which other names may share; -1: nobody else can have these bytes. The store holds no lock of its own when it calls.
using DamageListener = std::function<void(const codec::Digest&, int file)>;

/// Is told of a blob that has gone from the store and whose inode has other names, so that its bytes stay on the disk.
/// The store holds no lock of its own when it calls.
using LeftListener = std::function<void(uint64_t inode, uint64_t size)>;

/// One artefact on its way into the store. Unless commit() answered success, the destructor discards it and leaves
/// nothing behind; after an error it takes no more bytes. Its calls block on the local disk. It must not outlive its
/// store. Needs external synchronisation.
class BlobWriter {
 public:
  virtual ~BlobWriter() = default;
  [[nodiscard]] virtual Result<void> append(std::string_view bytes) = 0;
  /// Puts the blob into the store. kCorrupt when the bytes that were written are not those of `expected`, unless the
  /// caller has verified them (Verifier). A blob that is there already is a success, and its bytes stay.
  [[nodiscard]] virtual Result<void> commit(const codec::Digest& expected) = 0;
};

/// Who verifies that the bytes of a new blob have its digest.
enum class Verifier {
  kStore,
  kCaller,  ///< it has computed the digest of exactly what it appended before it calls commit()
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
  uint64_t damaged = 0;    ///< times that the disk gave other bytes than were written to it, until a repair (check())
  int64_t damaged_at = 0;  ///< the last of them, in seconds since 1970
};

/// The blobs of one store directory, which one process at a time owns by an flock. Its calls block on the local disk.
/// Safe for concurrent use.
class BlobStore {
 public:
  virtual ~BlobStore() = default;

  /// Opens a store, and creates the directory if it is missing. Errors, each with its remedy in the text: kBusy
  /// (another daemon has it), kReadOnly or kNotPermitted (cannot write), kNoSpace, kNotSupported (made by a newer
  /// version), kCorrupt (its marker is damaged), kInvalid (neither a store nor empty; it is left alone). Temporary
  /// files of an earlier process are removed. After a host crash (another boot id and no clean close) blobs are
  /// suspect: each one is verified at its first use and dropped when it is damaged.
  [[nodiscard]] static Result<std::unique_ptr<BlobStore>> open(const StoreOptions& options, Counters& counters);

  /// Begins an artefact of about `size_hint` bytes and reserves them. When the limit is near it first evicts the least
  /// recently used blobs (see mark_read()) to which the guard agrees. kNoSpace when the disk (down to the floor) or the
  /// limit has no room even then; kTooLarge when the blob alone is over the limit.
  [[nodiscard]] virtual Result<std::unique_ptr<BlobWriter>> create(uint64_t size_hint, Verifier verifier) = 0;
  [[nodiscard]] Result<std::unique_ptr<BlobWriter>> create(uint64_t size_hint) {
    return create(size_hint, Verifier::kStore);
  }
  [[nodiscard]] virtual Result<codec::Digest> put(std::string_view bytes) = 0;
  /// Takes a finished local file in as a blob by hard link, without copying. The caller has computed the digest, and
  /// promises not to write to that inode again: the store has no other bytes. Falls back to a copy when links are not
  /// possible. Evicts and fails as create() does.
  [[nodiscard]] virtual Result<void> adopt(int dir, const std::string& path, const codec::Digest& digest) = 0;

  /// Looks a blob up and marks it as used. Verifies it by its digest first after a host crash, and when its file has
  /// another size or mtime than when it came or was verified last; a damaged one is dropped, and counted and told as
  /// store.corrupt and store.changed. What changed before the store was opened, or keeps both, `check` finds.
  [[nodiscard]] virtual std::optional<BlobInfo> find(const codec::Digest& digest) = 0;
  /// Opens a blob for reading. What it returns stays readable after eviction. kNotFound when the blob is absent.
  [[nodiscard]] virtual Result<BlobFile> open_blob(const codec::Digest& digest) = 0;
  /// Notes that a program has asked for the blob's bytes. What was only looked up or opened for a check is evicted
  /// before it, while that is more than a quarter of the store; what adopt() took in counts as read.
  virtual void mark_read(const codec::Digest& digest) = 0;
  /// Drops a blob that was found to be damaged, whatever the guard says, and tells the listener.
  virtual void discard(const codec::Digest& digest) = 0;
  /// Drops a sound blob that this host cannot use, whatever the guard says.
  virtual void drop(const codec::Digest& digest) { discard(digest); }
  /// Notes that the disk gave other bytes than were written to it, elsewhere than in a blob. Kept over restarts.
  virtual void note_damage() {}

  /// Evicts about `bytes` bytes now, because the disk is full for another writer; returns how many bytes were freed.
  virtual uint64_t free_space(uint64_t bytes) = 0;

  /// Evicts until `StoreOptions::free_floor` bytes of the disk are free, which another program may have filled.
  virtual void keep_floor() {}

  virtual void set_eviction_guard(EvictionGuard guard) = 0;
  virtual void set_damage_listener(DamageListener listener) = 0;
  virtual void set_left_listener(LeftListener) {}
  [[nodiscard]] virtual StoreUsage usage() const = 0;
  /// Returns the descriptor whose flock keeps other daemons out, or -1 if there is none. It is closed with the store; a
  /// process that holds a copy of it keeps other daemons out for longer than this object lives.
  [[nodiscard]] virtual int lock() const { return -1; }
  /// Syncs what was added to the disk, marks a clean close and lets go of the directory; the destructor does it too.
  /// After it nothing is added, evicted or discarded (kUnavailable).
  virtual void close() = 0;
};

}  // namespace inductorfs::store
