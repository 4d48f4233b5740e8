// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "inductorfs/base/result.h"

struct archive;
struct archive_entry;

namespace inductorfs::archive {

struct CloseArchive {
  void operator()(::archive* open) const;
};
using ArchiveHandle = std::unique_ptr<::archive, CloseArchive>;

/// Writes regular files into a tar file that zstd compresses. Blocks on the descriptor. Needs external synchronisation.
class TarWriter {
 public:
  [[nodiscard]] static Result<TarWriter> open(int fd);
  /// Begins a file of exactly `size` bytes.
  [[nodiscard]] Result<void> begin(const std::string& name, uint64_t size);
  [[nodiscard]] Result<void> append(std::string_view bytes);
  [[nodiscard]] Result<void> close();

 private:
  explicit TarWriter(ArchiveHandle handle) : handle_(std::move(handle)) {}
  ArchiveHandle handle_;
};

/// Reads such a file. It knows no other format and no other compression. Needs external synchronisation.
class TarReader {
 public:
  struct Member {
    std::string name;
    uint64_t size = 0;
  };
  [[nodiscard]] static Result<TarReader> open(int fd);
  /// Returns the next member, or nothing at the end. kCorrupt for anything but a regular file.
  [[nodiscard]] Result<std::optional<Member>> next();
  /// Returns up to `most` bytes of the member; none at its end.
  [[nodiscard]] Result<std::string> read(size_t most);

 private:
  explicit TarReader(ArchiveHandle handle) : handle_(std::move(handle)) {}
  ArchiveHandle handle_;
};

}  // namespace inductorfs::archive
