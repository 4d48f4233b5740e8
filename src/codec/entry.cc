// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/codec/entry.h"

#include <algorithm>
#include <limits>

#include "inductorfs/base/encoding.h"

namespace inductorfs::codec {
namespace {

constexpr uint8_t kRecordVersion = 2;
constexpr size_t kCheckSize = sizeof(uint32_t);
constexpr uint8_t kSet = 'S';
constexpr uint8_t kDelete = 'D';
constexpr uint32_t kPermissionBits = 0777;
constexpr uint64_t kSizeLimit = std::numeric_limits<int64_t>::max();
static_assert(kPathLimit <= std::numeric_limits<uint16_t>::max());
static_assert(kOriginLimit <= std::numeric_limits<uint8_t>::max());

tl::unexpected<Error> corrupt(std::string_view what, std::string_view why) {
  return fail(ErrorCode::kCorrupt, "decode " + std::string(what) + ": " + std::string(why));
}

tl::unexpected<Error> other_version(std::string_view what, uint8_t version, uint8_t known) {
  if (version == 0) return corrupt(what, "it has no version");
  return fail(ErrorCode::kNotSupported,
              "decode " + std::string(what) + ": version " + std::to_string(version) +
                  (version < known ? " is no longer read" : " is unknown, a newer inductorfs may have written it"));
}

bool is_printable(char c) { return c >= ' ' && c <= '~'; }

void append_path(std::string& out, uint8_t kind, const std::string& path) {
  INDUCTORFS_CHECK(is_clean_path(path));
  append_integer(out, kind);
  append_integer(out, static_cast<uint16_t>(path.size()));
  out.append(path);
}

}  // namespace

bool is_clean_path(std::string_view path) {
  if (path.empty() || path.size() > kPathLimit || path.find('\0') != std::string_view::npos) return false;
  for (size_t start = 0; start <= path.size();) {
    const size_t end = std::min(path.find('/', start), path.size());
    const std::string_view component = path.substr(start, end - start);
    if (component.empty() || component == "." || component == "..") return false;
    start = end + 1;
  }
  return true;
}

std::string encode_entry(const Entry& entry) {
  INDUCTORFS_CHECK(entry.size <= kSizeLimit);
  // The origin is for people only: better a shortened one than an entry that no reader accepts.
  std::string origin = entry.origin.substr(0, kOriginLimit);
  std::replace_if(
      origin.begin(), origin.end(), [](char c) { return !is_printable(c); }, '?');
  std::string value;
  append_integer(value, kEntryVersion);
  value.append(entry.digest.raw());
  append_integer(value, entry.size);
  append_integer(value, static_cast<uint16_t>(entry.mode & kPermissionBits));
  append_integer(value, static_cast<uint64_t>(entry.mtime_ns));
  append_integer(value, static_cast<uint8_t>(origin.size()));
  value.append(origin);
  append_integer(value, crc32(entry.path, crc32(value)));
  return value;
}

bool is_newer_entry(std::string_view value) {
  return !value.empty() && static_cast<uint8_t>(value.front()) > kEntryVersion;
}

Result<Entry> decode_entry(std::string_view path, std::string_view value) {
  if (!is_clean_path(path)) return corrupt("entry", "its path is not clean");
  ByteReader reader(value);
  if (const auto version = reader.integer<uint8_t>(); version != kEntryVersion) {
    return other_version("entry", version, kEntryVersion);
  }
  Entry entry;
  entry.path = path;
  entry.digest = Digest::from_raw(reader.bytes(Digest::kSize)).value_or(Digest{});
  entry.size = reader.integer<uint64_t>();
  entry.mode = reader.integer<uint16_t>();
  entry.mtime_ns = static_cast<int64_t>(reader.integer<uint64_t>());
  const auto origin_length = reader.integer<uint8_t>();
  entry.origin = reader.bytes(origin_length);
  const size_t checked = value.size() - reader.left();
  const auto check = reader.integer<uint32_t>();
  if (!reader.complete()) return corrupt("entry", "wrong length");
  if (check != crc32(path, crc32(value.substr(0, checked)))) return corrupt("entry", "it is damaged");
  if (entry.size > kSizeLimit) return corrupt("entry", "its size is over the limit");
  if ((entry.mode & ~kPermissionBits) != 0) return corrupt("entry", "its mode has more than permission bits");
  if (origin_length > kOriginLimit) return corrupt("entry", "its origin is over the limit");
  if (!std::all_of(entry.origin.begin(), entry.origin.end(), is_printable)) {
    return corrupt("entry", "its origin is not printable");
  }
  return entry;
}

std::string encode_record(const LogRecord& record) {
  const size_t count = record.set.size() + record.removed.size();
  INDUCTORFS_CHECK(count <= kRecordEntryLimit);
  std::string out;
  append_integer(out, kRecordVersion);
  append_integer(out, static_cast<uint32_t>(count));
  for (const Entry& entry : record.set) {
    append_path(out, kSet, entry.path);
    const std::string value = encode_entry(entry);
    append_integer(out, static_cast<uint16_t>(value.size()));
    out.append(value);
  }
  for (const std::string& path : record.removed) append_path(out, kDelete, path);
  append_integer(out, crc32(out));
  return out;
}

Result<LogRecord> decode_record(std::string_view bytes) {
  if (bytes.size() < kCheckSize) return corrupt("record", "wrong length");
  const std::string_view checked = bytes.substr(0, bytes.size() - kCheckSize);
  ByteReader check(bytes.substr(checked.size()));
  ByteReader reader(checked);
  if (const auto version = reader.integer<uint8_t>(); version != kRecordVersion) {
    return other_version("record", version, kRecordVersion);
  }
  if (check.integer<uint32_t>() != crc32(checked)) return corrupt("record", "it is damaged");
  const auto count = reader.integer<uint32_t>();
  if (count > kRecordEntryLimit) return corrupt("record", "more entries than the limit");
  LogRecord record;
  for (uint32_t i = 0; i < count && !reader.failed(); ++i) {
    const auto kind = reader.integer<uint8_t>();
    const std::string_view path = reader.bytes(reader.integer<uint16_t>());
    if (kind == kSet && record.removed.empty()) {
      const std::string_view value = reader.bytes(reader.integer<uint16_t>());
      INDUCTORFS_TRY_ASSIGN(auto entry, decode_entry(path, value));
      record.set.push_back(std::move(entry));
    } else if (kind == kDelete) {
      if (!is_clean_path(path)) return corrupt("record", "a path is not clean");
      record.removed.emplace_back(path);
    } else {
      return corrupt("record", "unknown kind, or a set after a delete");
    }
  }
  if (!reader.complete()) return corrupt("record", "wrong length");
  return record;
}

}  // namespace inductorfs::codec
