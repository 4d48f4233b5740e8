// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/codec/parcel.h"

#include <algorithm>
#include <limits>
#include <set>

#include "inductorfs/base/encoding.h"
#include "inductorfs/codec/entry.h"

namespace inductorfs::codec {
namespace {

constexpr std::string_view kMagic = "IFSP";
constexpr uint8_t kVersion = 1;
constexpr size_t kReserved = 3;
constexpr uint8_t kFile = 'F';
constexpr uint8_t kDirectory = 'D';
constexpr uint32_t kPermissionBits = 0777;
constexpr uint64_t kSizeLimit = std::numeric_limits<int64_t>::max();

tl::unexpected<Error> corrupt(std::string_view why) {
  return fail(ErrorCode::kCorrupt, "decode parcel: " + std::string(why));
}

/// Returns why these cannot be the items of a parcel; empty when they can.
std::string problem_of(const std::vector<ParcelItem>& items) {
  if (items.size() > kParcelItemLimit) return "more than " + std::to_string(kParcelItemLimit) + " items";
  std::set<std::string_view> directories;
  uint64_t total = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    const ParcelItem& item = items[i];
    if (!is_clean_path(item.path)) return "a path is not clean";
    if (i > 0 && items[i - 1].path >= item.path) return "the paths are not in order";
    const size_t slash = item.path.rfind('/');
    if (slash != std::string::npos && !directories.contains(std::string_view(item.path).substr(0, slash))) {
      return item.path + " is in no directory of the parcel";
    }
    if (item.directory) directories.insert(item.path);
    if (item.directory && item.size != 0) return "a directory has a size";
    if ((item.mode & ~kPermissionBits) != 0) return "a mode has more than permission bits";
    if (item.size > kSizeLimit - total) return "its size is over the limit";
    total += item.size;
  }
  return {};
}

}  // namespace

uint64_t ParcelHead::whole() const {
  uint64_t bytes = size;
  for (const ParcelItem& item : items) bytes += item.size;
  return bytes;
}

Result<std::string> encode_parcel_head(std::vector<ParcelItem>& items) {
  std::sort(items.begin(), items.end(), [](const auto& one, const auto& other) { return one.path < other.path; });
  if (const std::string problem = problem_of(items); !problem.empty()) {
    return fail(ErrorCode::kInvalid, "encode parcel: " + problem);
  }
  std::string rest;
  append_integer(rest, static_cast<uint32_t>(items.size()));
  for (const ParcelItem& item : items) {
    append_integer(rest, item.directory ? kDirectory : kFile);
    append_integer(rest, static_cast<uint16_t>(item.mode));
    append_integer(rest, static_cast<uint64_t>(item.mtime_ns));
    append_integer(rest, item.size);
    append_integer(rest, static_cast<uint16_t>(item.path.size()));
    rest.append(item.path);
  }
  const size_t size = kParcelPreambleSize + rest.size();
  if (size > kParcelHeadLimit) return fail(ErrorCode::kInvalid, "encode parcel: the paths are over the limit");
  std::string head(kMagic);
  append_integer(head, kVersion);
  head.append(kReserved, '\0');
  append_integer(head, static_cast<uint32_t>(size));
  return head + rest;
}

Result<uint64_t> parcel_head_size(std::string_view bytes) {
  ByteReader reader(bytes);
  if (reader.bytes(kMagic.size()) != kMagic) return corrupt("it does not begin as one");
  if (const auto version = reader.integer<uint8_t>(); version != kVersion) {
    if (version < kVersion) return corrupt("it has no version");
    return fail(ErrorCode::kNotSupported, "decode parcel: version " + std::to_string(version) +
                                              " is unknown, a newer inductorfs may have written it");
  }
  if (reader.bytes(kReserved) != std::string_view("\0\0\0", kReserved)) return corrupt("reserved bytes are set");
  const auto size = reader.integer<uint32_t>();
  if (reader.failed() || size < kParcelPreambleSize || size > kParcelHeadLimit) return corrupt("its head has no size");
  return size;
}

Result<ParcelHead> decode_parcel_head(std::string_view bytes) {
  INDUCTORFS_TRY_ASSIGN(const auto size, parcel_head_size(bytes));
  if (bytes.size() < size) return corrupt("it is cut off");
  ByteReader reader(bytes.substr(kParcelPreambleSize, size - kParcelPreambleSize));
  ParcelHead head{{}, size};
  const auto count = reader.integer<uint32_t>();
  if (count > kParcelItemLimit) return corrupt("more items than the limit");
  for (uint32_t i = 0; i < count && !reader.failed(); ++i) {
    ParcelItem item;
    const auto kind = reader.integer<uint8_t>();
    if (kind != kFile && kind != kDirectory) return corrupt("an item is of no known kind");
    item.directory = kind == kDirectory;
    item.mode = reader.integer<uint16_t>();
    item.mtime_ns = static_cast<int64_t>(reader.integer<uint64_t>());
    item.size = reader.integer<uint64_t>();
    item.path = reader.bytes(reader.integer<uint16_t>());
    head.items.push_back(std::move(item));
  }
  if (!reader.complete()) return corrupt("its head has the wrong length");
  if (const std::string problem = problem_of(head.items); !problem.empty()) return corrupt(problem);
  return head;
}

Result<std::vector<std::string_view>> parcel_bodies(const ParcelHead& head, std::string_view bytes) {
  if (bytes.size() != head.whole()) return corrupt("it has the wrong length");
  std::vector<std::string_view> bodies;
  bodies.reserve(head.items.size());
  uint64_t at = head.size;
  for (const ParcelItem& item : head.items) {
    bodies.push_back(bytes.substr(at, item.size));
    at += item.size;
  }
  return bodies;
}

}  // namespace inductorfs::codec
