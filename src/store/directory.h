// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"
#include "inductorfs/codec/digest.h"

/// The layout of the store's directory on disk:
///
///     format   "inductorfs-store 1\n"
///     lock     flock of the owner, whose process id it holds, and that it ends soon
///     state    "open|clean <boot id> sound|suspect\n": the condition in which the last owner left it
///     blobs/<first two hex digits>/<64 hex digits>     atime: last use, to the hour
///     packs/<number>, packs/<number>.index     many small blobs (pack.h)
///     tmp/     files that are being added or removed; emptied by the next owner
///     damaged  "<times> <seconds since 1970>\n": how often, and when last, the disk gave other bytes than were written
///     set-aside/   what `inductorfs check --repair` found in the place of blobs and left to a person
namespace inductorfs::store {

class PackedBlob;
class Packs;

inline constexpr const char* kTemporaryFolder = "tmp";
inline constexpr const char* kBlobFolder = "blobs";
inline constexpr const char* kDamageFile = "damaged";

/// Returns the path of a blob, relative to the store's directory.
[[nodiscard]] std::string blob_path(const codec::Digest& digest);

struct ScannedBlob {
  codec::Digest digest;
  uint64_t size = 0;
  WallNanoseconds used = 0;
  std::shared_ptr<PackedBlob> packed;  ///< nullptr: a file of its own
  WallNanoseconds modified = 0;        ///< its mtime
};

[[nodiscard]] inline WallNanoseconds nanoseconds_of(const struct timespec& time) {
  return time.tv_sec * WallNanoseconds{1'000'000'000} + time.tv_nsec;
}

/// A store directory that this process owns. Needs external synchronisation.
struct OwnedDirectory {
  std::string path;
  Fd fd;
  Fd lock;
  bool shared_lock = false;  ///< other processes hold the lock too, so that this one must not free it
  std::string boot_id;
  std::unique_ptr<Packs> packs;
  std::vector<ScannedBlob> blobs;  ///< least recently used first
  /// The host may have crashed while blobs were only in its memory: any of them may be damaged.
  bool suspect = false;
};

/// Takes a store directory. BlobStore::open lists the errors, StoreOptions explains `lock` and `patience`.
[[nodiscard]] Result<OwnedDirectory> own_directory(const std::string& path, const std::string& boot_id, int lock = -1,
                                                   Milliseconds patience = Milliseconds(0));

/// Opens an existing store, and keeps other processes out of it as long as the returned lock lives. Changes nothing in
/// it.
[[nodiscard]] Result<Fd> lock_store(const std::string& path, Fd& directory);

/// Calls `use` for every name in a folder of `dir` except "." and "..".
[[nodiscard]] Result<void> for_each_name(int dir, const char* folder, const std::function<void(const char*)>& use);

/// Renames a file of this store to the blob's place, and replaces what is there.
[[nodiscard]] Result<void> move_into_place(int dir, const std::string& temporary, const codec::Digest& digest);

/// Says whether there is room for 1 MiB, by a trial: a quota shows in no statvfs(2).
[[nodiscard]] bool takes_writes(int dir);

/// Keeps 1 MiB and some inodes that a start on a full disk frees, where the disk has room enough. Returns whether they
/// are there. For the store's owner alone.
[[nodiscard]] bool keep_reserve(int dir);

/// Writes everything to disk, so that the next owner need not suspect any blob, whatever happens to the host.
/// `suspects` says that this process has not verified all suspect blobs either; `changed` says whether there is
/// anything to sync.
[[nodiscard]] Result<void> mark_clean(const OwnedDirectory& directory, bool suspects, bool changed);

/// Returns the running kernel's /proc/sys/kernel/random/boot_id; "unknown", which equals no other boot, when there is
/// none.
[[nodiscard]] std::string running_boot_id();

}  // namespace inductorfs::store
