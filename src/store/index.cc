// SPDX-License-Identifier: Apache-2.0
#include "index.h"

#include <utility>

namespace inductorfs::store {
namespace {

/// About 200 bytes of memory each. Only tiny blobs get here before the size limit does.
constexpr size_t kBlobLimit = 4'000'000;

}  // namespace

IndexedBlob* Index::find(const codec::Digest& digest) {
  const auto at = blobs_.find(digest);
  return at == blobs_.end() ? nullptr : &at->second;
}

void Index::insert(const codec::Digest& digest, uint64_t size, WallNanoseconds used, bool suspect,
                   std::shared_ptr<PackedBlob> packed) {
  erase(digest);
  by_use_.push_back(digest);
  blobs_.emplace(digest, IndexedBlob{size, used, next_use_++, suspect, std::move(packed), std::prev(by_use_.end())});
  bytes_ += size;
  if (suspect) ++suspects_;
}

void Index::erase(const codec::Digest& digest) {
  const auto at = blobs_.find(digest);
  if (at == blobs_.end()) return;
  bytes_ -= at->second.size;
  if (at->second.suspect) --suspects_;
  by_use_.erase(at->second.place);
  blobs_.erase(at);
}

void Index::touch(IndexedBlob& blob) {
  blob.use = next_use_++;
  by_use_.splice(by_use_.end(), by_use_, blob.place);
}

void Index::mark_sound(IndexedBlob& blob) {
  if (!blob.suspect) return;
  blob.suspect = false;
  --suspects_;
}

std::optional<Index::Victim> Index::oldest() const {
  if (by_use_.empty()) return std::nullopt;
  const IndexedBlob& blob = blobs_.at(by_use_.front());
  return Victim{by_use_.front(), blob.size, blob.use};
}

bool Index::fits(uint64_t more) const {
  const uint64_t taken = bytes_ + reserved_;
  return blobs_.size() < kBlobLimit && taken <= size_limit_ && more <= size_limit_ - taken;
}

}  // namespace inductorfs::store
