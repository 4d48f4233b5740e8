// SPDX-License-Identifier: Apache-2.0
#include "holdings.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "inductorfs/base/fail_point.h"

namespace inductorfs::store {

Holdings::Holdings(OwnedDirectory owned, uint64_t size_limit, Counters& counters)
    : directory(std::move(owned)),
      index(size_limit),
      blobs_gauge_(counters.get("store.blobs")),
      bytes_gauge_(counters.get("store.bytes")) {}

Holdings::Retired Holdings::retire(BlobIndex& held, const codec::Digest& digest) {
  Retired retired;
  if (const IndexedBlob* blob = held.find(digest)) retired.packed = blob->packed;
  held.erase(digest);
  publish_usage(held);
  if (retired.packed) {
    // The disk must not say "clean" while it has the hole and not the record's mark.
    held.changed = true;
    retired.packed->drop();
    return retired;
  }
  const std::string blob = blob_path(digest);
  struct stat file {};
  if (::fstatat(folder(), blob.c_str(), &file, AT_SYMLINK_NOFOLLOW) == 0 && file.st_nlink > 1) {
    retired.elsewhere = {file.st_ino, static_cast<uint64_t>(file.st_size)};
  }
  retired.temporary = next_temporary();
  // A rename is short; freeing the blocks of a large file is not, and happens without the lock.
  if (::renameat(folder(), blob.c_str(), folder(), retired.temporary.c_str()) == 0) {
    fail_point("store.retired");
    return retired;
  }
  // No room for the name, or gone already: the blob must not come back with the next open.
  (void)::unlinkat(folder(), blob.c_str(), 0);
  retired.temporary.clear();
  return retired;
}

void Holdings::free_retired(Retired retired) const {
  unlink_temporary(retired.temporary);
  const auto listener = left_listener_.with([](const std::shared_ptr<const LeftListener>& current) { return current; });
  const auto [inode, size] = retired.elsewhere;
  if (inode != 0 && listener && *listener) (*listener)(inode, size);
  retired.packed.reset();  // frees its space, unless somebody still reads it
}

void Holdings::unlink_temporary(const std::string& name) const {
  // What cannot be unlinked now goes with the next open of the store.
  if (!name.empty()) (void)::unlinkat(folder(), name.c_str(), 0);
  fail_point("store.unlinked");
}

std::string Holdings::next_temporary() {
  return std::string(kTemporaryFolder) + "/" + std::to_string(serial_.fetch_add(1));
}

void Holdings::publish_usage(const BlobIndex& held) {
  blobs_gauge_.set(held.count());
  bytes_gauge_.set(held.bytes());
}

void Holdings::set_left_listener(LeftListener listener) {
  auto shared = std::make_shared<const LeftListener>(std::move(listener));
  left_listener_.with([&](std::shared_ptr<const LeftListener>& current) { current = std::move(shared); });
}

tl::unexpected<Error> Holdings::closed_error() const {
  return fail(ErrorCode::kUnavailable, "store " + directory.path + " is closed");
}

}  // namespace inductorfs::store
