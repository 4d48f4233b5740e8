// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "directory.h"
#include "index.h"
#include "inductorfs/base/counters.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/store/blob_store.h"
#include "pack.h"

namespace inductorfs::store {

/// The directory of a store and the index of its blobs, which change together under the index's lock, by renames, links
/// and records of packs only; and how a blob leaves both. Safe for concurrent use.
class Holdings {
 public:
  /// A blob that no open finds any more, and whose space is still to be freed, without the lock.
  struct Retired {
    std::string temporary;                          ///< the name that its file has until it is unlinked; empty: none
    std::shared_ptr<PackedBlob> packed;             ///< nullptr: it is in no pack
    std::pair<uint64_t, uint64_t> elsewhere{0, 0};  ///< its inode and size, where that has other names
  };

  Holdings(OwnedDirectory owned, uint64_t size_limit, Counters& counters);

  [[nodiscard]] int folder() const { return directory.fd.get(); }
  /// Removes the blob from index and disk, under the lock.
  [[nodiscard]] Retired retire(BlobIndex& held, const codec::Digest& digest);
  void free_retired(Retired retired) const;
  [[nodiscard]] std::string next_temporary();
  void unlink_temporary(const std::string& name) const;
  void publish_usage(const BlobIndex& held);
  void set_left_listener(LeftListener listener);
  [[nodiscard]] tl::unexpected<Error> closed_error() const;

  const OwnedDirectory directory;
  Guarded<BlobIndex> index;

 private:
  Guarded<std::shared_ptr<const LeftListener>> left_listener_;
  std::atomic<uint64_t> serial_{0};
  Counter& blobs_gauge_;
  Counter& bytes_gauge_;
};

}  // namespace inductorfs::store
