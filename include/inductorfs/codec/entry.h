// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/result.h"
#include "inductorfs/codec/digest.h"

namespace inductorfs::codec {

/// What the cluster knows of one shared name: it maps a canonical path to bytes and attributes.
struct Entry {
  std::string path;      ///< canonical path (layout/layout.h), relative to the mount, no leading slash
  Digest digest;         ///< of the published bytes
  uint64_t size = 0;     ///< of the published bytes
  uint32_t mode = 0644;  ///< permission bits only
  int64_t mtime_ns =
      0;               ///< modification time of the writer's file; it never changes, so that the kernel keeps its pages
  std::string origin;  ///< the publisher: "host/mount id", at most kOriginLimit bytes

  bool operator==(const Entry&) const = default;
};

inline constexpr size_t kPathLimit = 1024;
inline constexpr size_t kOriginLimit = 128;
inline constexpr size_t kRecordEntryLimit = 4096;

/// Encodes an entry's value in the index (the path is the field's name there):
///     value := version digest size mode mtime origin_length origin check
///     version := u8 = 2, digest := 32 bytes, size := u64, mode := u16, mtime := i64, origin_length := u8,
///     check := u32, crc32 (base/encoding.h) of all before it and then the path
/// Integers are little-endian. The mode is cut to its permission bits. The origin, which is for people only, is cut to
/// kOriginLimit bytes of printable ASCII. Version history: 1, without check; 2.
[[nodiscard]] std::string encode_entry(const Entry& entry);
/// Decodes an entry. kCorrupt unless the whole value is used up, every field is within its limit and the check is
/// right. `path` must be a clean relative path (no empty, "." or ".." component, no NUL, at most kPathLimit bytes).
/// kNotSupported for another version, which other releases may be able to read. One entry has one encoding: a value
/// that is accepted encodes to the same bytes again.
[[nodiscard]] Result<Entry> decode_entry(std::string_view path, std::string_view value);
/// The version that encode_entry() writes.
inline constexpr uint8_t kEntryVersion = 2;
/// Says whether a newer release wrote this value. Where such a value has its digest, only that release knows.
[[nodiscard]] bool is_newer_entry(std::string_view value);
[[nodiscard]] bool is_clean_path(std::string_view path);

/// One record of a scope's log: the changes that one publish made.
///     record := version count { kind path_length path [value_length value] } check
///     version := u8 = 2, count := u32, kind := 'S' set | 'D' delete, path_length := u16, value_length := u16,
///     check := u32, crc32 of all before it
/// All sets come before all deletes. Version history: 1, without check; 2.
struct LogRecord {
  std::vector<Entry> set;
  std::vector<std::string> removed;
  bool operator==(const LogRecord&) const = default;
};
/// Encodes a record, whose paths must be clean and at most kRecordEntryLimit.
[[nodiscard]] std::string encode_record(const LogRecord& record);
[[nodiscard]] Result<LogRecord> decode_record(std::string_view bytes);

}  // namespace inductorfs::codec
