// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"
#include "inductorfs/codec/digest.h"

namespace inductorfs::store {

/// The bytes of one blob: a range of a file, in which other blobs may lie before and behind it. They stay readable as
/// long as this object lives, evicted or not. Its calls block on the local disk. Safe for concurrent use.
class BlobFile {
 public:
  /// A larger blob has a file of its own.
  static constexpr uint64_t kPackedMost = 256ULL << 10;

  /// `keeper` keeps the range from being given back to the disk; nullptr when the file itself is the blob's.
  BlobFile(Fd file, uint64_t offset, uint64_t size, std::shared_ptr<const void> keeper = nullptr)
      : file_(std::move(file)), offset_(offset), size_(size), keeper_(std::move(keeper)) {}

  [[nodiscard]] int file() const { return file_.get(); }
  /// Where in file() the blob begins.
  [[nodiscard]] uint64_t offset() const { return offset_; }
  [[nodiscard]] uint64_t size() const { return size_; }

  /// Reads up to `size` bytes of the blob from its byte `at` on; fewer only at its end.
  [[nodiscard]] Result<size_t> read(char* out, size_t size, uint64_t at) const;
  /// Returns all bytes. kTooLarge when there are more than `limit`; kCorrupt when the file has become shorter.
  [[nodiscard]] Result<std::string> read_all(uint64_t limit) const;
  /// Computes the digest of the bytes as they are now.
  [[nodiscard]] Result<codec::Digest> digest() const;

 private:
  Fd file_;
  uint64_t offset_;
  uint64_t size_;
  std::shared_ptr<const void> keeper_;
};

}  // namespace inductorfs::store
