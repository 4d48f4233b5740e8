// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "fuzz_target.h"
#include "inductorfs/codec/entry.h"

namespace codec = inductorfs::codec;
namespace fuzz = inductorfs::fuzz;

namespace {

void fuzz_entry(std::string_view path, std::string_view value) {
  (void)codec::decode_entry(path, value);  // the check refuses nearly all
  const std::string fitting = fuzz::checked(value, path);
  const auto entry = codec::decode_entry(path, fitting);
  if (!entry) return;
  INDUCTORFS_CHECK(codec::is_clean_path(path) && entry->path == path);
  INDUCTORFS_CHECK(codec::encode_entry(*entry) == fitting);
  INDUCTORFS_CHECK(!codec::decode_entry(entry->path + "x", fitting));
}

void fuzz_record(std::string_view bytes) {
  (void)codec::decode_record(bytes);  // the check refuses nearly all
  const std::string fitting = fuzz::checked(bytes);
  if (const auto record = codec::decode_record(fitting)) {
    INDUCTORFS_CHECK(codec::encode_record(*record) == fitting);
    INDUCTORFS_CHECK(record->set.size() + record->removed.size() <= codec::kRecordEntryLimit);
    for (const codec::Entry& entry : record->set) INDUCTORFS_CHECK(codec::is_clean_path(entry.path));
    for (const std::string& path : record->removed) INDUCTORFS_CHECK(codec::is_clean_path(path));
  }
}

/// A record's entries have checks of their own, inside of the record's: made to fit, so that what lies behind the first
/// of them is reached. The input is a list of path, NUL, value, each with its length.
void fuzz_record_of_entries(std::string_view input) {
  std::string body;
  uint32_t count = 0;
  while (input.size() > 2 && count < 64) {
    const uint8_t kind = fuzz::take_byte(input);
    const size_t length = fuzz::take_byte(input);
    const auto [path, value] = fuzz::halves(input.substr(0, length));
    input.remove_prefix(std::min(length, input.size()));
    body += static_cast<char>(kind);
    inductorfs::append_integer(body, static_cast<uint16_t>(path.size()));
    body += path;
    ++count;
    if (kind != 'S') continue;
    const std::string fitting = fuzz::checked(value, path);
    inductorfs::append_integer(body, static_cast<uint16_t>(fitting.size()));
    body += fitting;
  }
  std::string record("\x02", 1);
  inductorfs::append_integer(record, count);
  fuzz_record(record + body);
}

}  // namespace

/// The first byte picks: an entry (path, NUL, value), a record, a record's entries.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view input = fuzz::view(data, size);
  if (input.empty()) return 0;
  switch (fuzz::take_byte(input) % 3) {
    case 0: {
      const auto [path, value] = fuzz::halves(input);
      fuzz_entry(path, value);
      break;
    }
    case 1:
      fuzz_record(input);
      break;
    default:
      fuzz_record_of_entries(input);
      break;
  }
  return 0;
}
