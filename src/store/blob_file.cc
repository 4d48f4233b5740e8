// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/store/blob_file.h"

#include <algorithm>

namespace inductorfs::store {
namespace {

constexpr size_t kPiece = 256ULL << 10;

}  // namespace

Result<size_t> BlobFile::read(char* out, size_t size, uint64_t at) const {
  if (at >= size_) return size_t{0};
  return pread_full(file_.get(), out, std::min<uint64_t>(size, size_ - at), offset_ + at);
}

Result<std::string> BlobFile::read_all(uint64_t limit) const {
  if (size_ > limit) return fail(ErrorCode::kTooLarge, std::to_string(size_) + " bytes in a blob");
  std::string bytes(size_, '\0');
  INDUCTORFS_TRY_ASSIGN(const auto got, read(bytes.data(), bytes.size(), 0));
  if (got != bytes.size()) return fail(ErrorCode::kCorrupt, "a blob became shorter");
  return bytes;
}

Result<codec::Digest> BlobFile::digest() const {
  codec::Hasher hasher;
  std::string piece(std::min<uint64_t>(size_, kPiece), '\0');
  for (uint64_t at = 0; at < size_;) {
    INDUCTORFS_TRY_ASSIGN(const auto got, read(piece.data(), piece.size(), at));
    if (got == 0) return fail(ErrorCode::kCorrupt, "a blob became shorter");
    hasher.update(std::string_view(piece).substr(0, got));
    at += got;
  }
  return hasher.finish();
}

}  // namespace inductorfs::store
