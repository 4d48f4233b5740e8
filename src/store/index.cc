// SPDX-License-Identifier: Apache-2.0
#include "index.h"

#include <utility>

namespace inductorfs::store {
namespace {

/// About 200 bytes of memory each. Only tiny blobs get here before the size limit does.
constexpr size_t kBlobLimit = 4'000'000;
/// The part of the bytes that blobs which nobody has read may keep others from, as a divisor.
constexpr uint64_t kUnreadDivisor = 4;

}  // namespace

IndexedBlob* BlobIndex::find(const codec::Digest& digest) {
  const auto at = blobs_.find(digest);
  return at == blobs_.end() ? nullptr : &at->second;
}

IndexedBlob& BlobIndex::insert(const codec::Digest& digest, uint64_t size, WallNanoseconds used, bool suspect,
                               std::shared_ptr<PackedBlob> packed) {
  erase(digest);
  unread_.push_back(digest);
  bytes_ += size;
  unread_bytes_ += size;
  if (suspect) ++suspects_;
  IndexedBlob blob{size, used, next_use_++, suspect, false, std::move(packed), 0, std::prev(unread_.end())};
  return blobs_.emplace(digest, std::move(blob)).first->second;
}

void BlobIndex::erase(const codec::Digest& digest) {
  const auto at = blobs_.find(digest);
  if (at == blobs_.end()) return;
  bytes_ -= at->second.size;
  if (at->second.suspect) --suspects_;
  if (!at->second.read) unread_bytes_ -= at->second.size;
  (at->second.read ? read_ : unread_).erase(at->second.place);
  blobs_.erase(at);
}

void BlobIndex::touch(IndexedBlob& blob) {
  blob.use = next_use_++;
  auto& list = blob.read ? read_ : unread_;
  list.splice(list.end(), list, blob.place);
}

void BlobIndex::mark_read(IndexedBlob& blob) {
  blob.use = next_use_++;
  read_.splice(read_.end(), blob.read ? read_ : unread_, blob.place);
  if (!std::exchange(blob.read, true)) unread_bytes_ -= blob.size;
}

void BlobIndex::mark_sound(IndexedBlob& blob) {
  if (!blob.suspect) return;
  blob.suspect = false;
  --suspects_;
}

std::optional<BlobIndex::Victim> BlobIndex::oldest(size_t refused, bool read_too) const {
  if (blobs_.empty()) return std::nullopt;
  const auto use_of = [this](const auto& list) { return list.empty() ? UINT64_MAX : blobs_.at(list.front()).use; };
  bool unread = use_of(unread_) < use_of(read_);
  if (unread_bytes_ > bytes_ / kUnreadDivisor && !read_.empty()) {
    unread = refused < unread_.size();
    if (!unread && !read_too) return std::nullopt;
  }
  const auto& list = unread ? unread_ : read_;
  const IndexedBlob& blob = blobs_.at(list.front());
  return Victim{list.front(), blob.size, blob.use};
}

bool BlobIndex::fits(uint64_t more) const {
  const uint64_t taken = bytes_ + reserved_;
  return blobs_.size() < kBlobLimit && taken <= size_limit_ && more <= size_limit_ - taken;
}

}  // namespace inductorfs::store
