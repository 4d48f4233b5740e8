// SPDX-License-Identifier: Apache-2.0
#include "mount/mounter/notes.h"

#include <array>
#include <exception>

#include "inductorfs/config/json.h"

namespace inductorfs::mount {

using config::Json;

namespace {

/// The memory begins with the offset of the bytes that count, 0 before the first ones. The other half of the memory is
/// for the next ones. The memory is sparse, so the room costs nothing.
constexpr std::array<uint64_t, 2> kHalves{4096, 16ULL << 20};
constexpr uint64_t kRoom = kHalves[1] - kHalves[0] - sizeof(uint64_t);

std::optional<uint64_t> read_number(int memory, uint64_t at) {
  uint64_t number = 0;
  const Result<size_t> got = pread_full(memory, reinterpret_cast<char*>(&number), sizeof number, at);
  if (!got || *got != sizeof number) return std::nullopt;
  return number;
}

Result<void> write_number(int memory, uint64_t number, uint64_t at) {
  return pwrite_full(memory, {reinterpret_cast<const char*>(&number), sizeof number}, at);
}

std::string encode(const Note& noted) {
  const Json json = {{"facts", noted.facts.to_json()},
                     {"learned", noted.learned},
                     {"traces", noted.traces},
                     {"also", noted.also},
                     {"left_over", noted.left_over}};
  const std::vector<uint8_t> bytes = Json::to_cbor(json);
  return {bytes.begin(), bytes.end()};
}

std::optional<Note> decode(std::string_view bytes) {
  try {
    const Json json = Json::from_cbor(bytes);
    Result<fingerprint::Fingerprint> facts = fingerprint::Fingerprint::from_json(json.at("facts").get<std::string>());
    if (!facts) return std::nullopt;
    return Note{std::move(*facts), json.at("learned").get<std::time_t>(), json.at("traces").get<std::string>(),
                json.at("also").get<std::vector<std::string>>(), json.value("left_over", std::string())};
  } catch (const std::exception&) {
    return std::nullopt;  // another version's: everything is found out again
  }
}

}  // namespace

std::optional<std::string> KeptMemory::read() const {
  const std::optional<uint64_t> at = read_number(memory_.get(), 0);
  if (!at || (*at != kHalves[0] && *at != kHalves[1])) return std::nullopt;
  const std::optional<uint64_t> size = read_number(memory_.get(), *at);
  if (!size || *size > kRoom) return std::nullopt;
  std::string bytes(static_cast<size_t>(*size), '\0');
  const Result<size_t> got = pread_full(memory_.get(), bytes.data(), bytes.size(), *at + sizeof *size);
  if (!got || *got != bytes.size()) return std::nullopt;
  return bytes;
}

Result<void> KeptMemory::write(std::string_view bytes) {
  if (!memory_) return {};
  if (bytes.size() > kRoom) return fail(ErrorCode::kTooLarge, "notes for the next process");
  const uint64_t at = read_number(memory_.get(), 0) == kHalves[0] ? kHalves[1] : kHalves[0];
  INDUCTORFS_TRY(write_number(memory_.get(), bytes.size(), at));
  INDUCTORFS_TRY(pwrite_full(memory_.get(), bytes, at + sizeof(uint64_t)));
  return write_number(memory_.get(), at, 0);  // who is killed before this leaves the earlier bytes
}

std::optional<Note> NoteMemory::read() const {
  const auto bytes = memory_.read();
  return bytes ? decode(*bytes) : std::nullopt;
}

Result<void> NoteMemory::write(const Note& noted) { return memory_.write(encode(noted)); }

}  // namespace inductorfs::mount
