// SPDX-License-Identifier: Apache-2.0
// What a lookup, and what an artefact, tells of a compile.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "inductorfs/layout/layout.h"

namespace inductorfs::layout {
namespace {

// Opcodes of pickle: pickle.py.
constexpr char kMemoize = '\x94';
constexpr char kOneByte = 'K';
constexpr char kTwoBytes = 'M';
constexpr char kFourBytes = 'J';
constexpr char kLong = '\x8a';

uint64_t little_endian(std::string_view bytes) {
  uint64_t number = 0;
  for (size_t i = bytes.size(); i > 0; --i) number = number << 8U | static_cast<uint8_t>(bytes[i - 1]);
  return number;
}

/// The number that is pickled here; nothing for a negative one, or one of more than eight bytes.
std::optional<uint64_t> pickled_number(std::string_view bytes) {
  if (bytes.empty()) return std::nullopt;
  const char opcode = bytes.front();
  bytes.remove_prefix(1);
  size_t size = opcode == kOneByte ? 1 : opcode == kTwoBytes ? 2 : opcode == kFourBytes ? 4 : 0;
  if (opcode == kLong && !bytes.empty()) {
    size = static_cast<uint8_t>(bytes.front());
    bytes.remove_prefix(1);
  }
  const bool is_signed = opcode == kFourBytes || opcode == kLong;
  if (size == 0 || size > sizeof(uint64_t) || bytes.size() < size) return std::nullopt;
  if (is_signed && (static_cast<uint8_t>(bytes[size - 1]) & 0x80U) != 0) return std::nullopt;
  return little_endian(bytes.substr(0, size));
}

}  // namespace

std::optional<AskedKey> key_asked_by(std::string_view path) {
  if (is_candidate_directory(path)) {
    std::string key = canonical_path(path);
    const bool is_graph = key.starts_with("fxgraph/");
    return AskedKey{is_graph ? Family::kFxGraph : Family::kAotAutograd, std::move(key)};
  }
  Classification classified = classify(path);
  if (!rule_of(classified.family).shared) return std::nullopt;
  switch (classified.family) {
    case Family::kFxGraph:
    case Family::kAotAutograd:
    case Family::kAotAutogradEntry:
      return std::nullopt;  // its directory was asked for before
    case Family::kTritonKernel:
      if (!is_group_file(path.substr(path.rfind('/') + 1))) return std::nullopt;
      return AskedKey{classified.family, std::move(classified.key_directory)};
    default:
      return AskedKey{classified.family, std::move(classified.canonical)};
  }
}

std::optional<std::chrono::nanoseconds> compile_time_of(Family family, std::string_view bytes) {
  // torch/_inductor/output_code.py: CompiledFxGraph._time_taken_ns, which torch itself reports as time saved
  // (codecache.py: FxGraphCache.load_with_key). SHORT_BINUNICODE, its length, and the name.
  constexpr std::string_view kName{"\x8c\x0e_time_taken_ns", 16};
  if (family != Family::kFxGraph) return std::nullopt;
  const size_t at = bytes.find(kName);
  if (at == std::string_view::npos) return std::nullopt;
  bytes.remove_prefix(at + kName.size());
  if (bytes.starts_with(kMemoize)) bytes.remove_prefix(1);
  const auto number = pickled_number(bytes);
  constexpr uint64_t kLongest = 24ULL * 3600 * 1'000'000'000;  // what says more is not torch's
  if (!number || *number > kLongest) return std::nullopt;
  return std::chrono::nanoseconds(static_cast<int64_t>(*number));
}

}  // namespace inductorfs::layout
