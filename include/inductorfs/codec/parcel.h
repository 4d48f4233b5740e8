// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/result.h"

/// A parcel is one blob that holds several files, because a program fails when it finds some of them without the
/// others (layout::Form). It is published, fetched, verified and evicted as any blob.
///
///     parcel := magic version reserved head_size count { item } bodies     (integers little-endian)
///     magic  := "IFSP"   version := u8 = 1   reserved := 3 bytes of 0   head_size := u32, of all before the bodies
///     count  := u32      item := kind mode mtime size path_length path
///     kind   := u8, 'F' file | 'D' directory   mode := u16   mtime := i64, in ns   size := u64   path_length := u16
///     bodies := the bytes of the files, in the order of the items
///
/// Paths are relative to the directory of the parcel, and strictly ascending as bytes, so that equal files give equal
/// parcels. A directory stands before what is in it. Version history: 1, first.
namespace inductorfs::codec {

inline constexpr size_t kParcelItemLimit = 4096;
inline constexpr uint32_t kParcelHeadLimit = uint32_t{4} << 20;
/// The bytes with which a parcel begins, up to and with head_size.
inline constexpr size_t kParcelPreambleSize = 4 + 1 + 3 + 4;

struct ParcelItem {
  std::string path;
  bool directory = false;
  uint32_t mode = 0644;  ///< permission bits only
  int64_t mtime_ns = 0;
  uint64_t size = 0;  ///< 0 for a directory
  bool operator==(const ParcelItem&) const = default;
};

struct ParcelHead {
  std::vector<ParcelItem> items;
  uint64_t size = 0;  ///< of the head itself: where the bodies begin
  /// Returns the size of the whole parcel.
  [[nodiscard]] uint64_t whole() const;
};

/// Encodes what stands before the bodies; sorts the items, in whose new order the bodies have to follow. kInvalid for
/// what decode_parcel_head() would refuse. Pure; safe for concurrent use.
[[nodiscard]] Result<std::string> encode_parcel_head(std::vector<ParcelItem>& items);
/// Returns the size of the head of the parcel that begins with these kParcelPreambleSize bytes or more. kCorrupt or
/// kNotSupported, as decode_parcel_head().
[[nodiscard]] Result<uint64_t> parcel_head_size(std::string_view bytes);
/// Decodes the head of a parcel; `bytes` are its first ones, the whole head among them. kCorrupt when it is damaged,
/// names a path that is not clean, twice, or below one that is no directory, or is over a limit. kNotSupported for
/// another version. Pure; safe for concurrent use.
[[nodiscard]] Result<ParcelHead> decode_parcel_head(std::string_view bytes);
/// Returns the body of each item of a whole parcel; the views point into `bytes`. kCorrupt when `bytes` are not exactly
/// what the head says.
[[nodiscard]] Result<std::vector<std::string_view>> parcel_bodies(const ParcelHead& head, std::string_view bytes);

}  // namespace inductorfs::codec
