// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"
#include "inductorfs/codec/digest.h"

/// The store's directory on disk:
///
///     format   "inductorfs-store 1\n"
///     lock     flock of the owner, whose process id it holds
///     state    "open|clean <boot id> sound|suspect\n": what the last owner left
///     blobs/<first two hex digits>/<64 hex digits>     atime: last use, to the hour
///     tmp/     files on their way in or out; emptied by the next owner
///     set-aside/   what `inductorfs check --repair` found in the place of blobs and left to a person
namespace inductorfs::store {

inline constexpr const char* kTemporaryFolder = "tmp";
inline constexpr const char* kBlobFolder = "blobs";

/// Relative to the store's directory.
[[nodiscard]] std::string blob_path(const codec::Digest& digest);

struct ScannedBlob {
  codec::Digest digest;
  uint64_t size = 0;
  WallNanoseconds used = 0;
};

/// A store directory that this process owns. Needs external synchronisation.
struct OwnedDirectory {
  std::string path;
  Fd fd;
  Fd lock;
  bool shared_lock = false;  ///< others hold it, too: it is not ours to free
  std::string boot_id;
  std::vector<ScannedBlob> blobs;  ///< least recently used first
  /// The host may have crashed while blobs were in its memory only: any of them may be damaged.
  bool suspect = false;
};

/// See BlobStore::open for the errors, and StoreOptions for `lock`.
[[nodiscard]] Result<OwnedDirectory> own_directory(const std::string& path, const std::string& boot_id, int lock = -1);

/// Opens an existing store and keeps everybody else out of it while the answer lives; changes nothing in it.
[[nodiscard]] Result<Fd> lock_store(const std::string& path, Fd& directory);

/// Every name in a folder of `dir` but "." and "..".
[[nodiscard]] Result<void> for_each_name(int dir, const char* folder, const std::function<void(const char*)>& use);

/// Renames a file of this store to the blob's place, over what is there.
[[nodiscard]] Result<void> move_into_place(int dir, const std::string& temporary, const codec::Digest& digest);

/// Everything is on disk when this returns: the next owner need not suspect anything, whatever happens to the host.
/// `suspects` are blobs that nobody has verified in this life either; `changed` says whether there is anything to sync.
[[nodiscard]] Result<void> mark_clean(const OwnedDirectory& directory, bool suspects, bool changed);

/// The running kernel's /proc/sys/kernel/random/boot_id; "unknown", which equals no other boot, when there is none.
[[nodiscard]] std::string running_boot_id();

}  // namespace inductorfs::store
