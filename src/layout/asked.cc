// SPDX-License-Identifier: Apache-2.0
// What a lookup, and what an artefact, tells of a compile.
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "families.h"
#include "inductorfs/layout/layout.h"
#include "layout/engines/engine.h"

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

// SHORT_BINUNICODE, its length, and the name of a member.
//
// torch/_inductor/output_code.py: CompiledFxGraph._time_taken_ns, which torch itself reports as time saved
// (codecache.py: FxGraphCache.load_with_key).
constexpr std::string_view kGraphTime{"\x8c\x0e_time_taken_ns", 16};
// torch/_functorch/_aot_autograd/aot_autograd_result.py: GenericAOTAutogradResult, with the time of its graphs in it.
constexpr std::string_view kForwardTime{
    "\x8c\x15"
    "forward_time_taken_ns",
    23};
constexpr std::string_view kBackwardTime{
    "\x8c\x16"
    "backward_time_taken_ns",
    24};
/// More than the layers of any model.
constexpr size_t kMostGraphs = 4096;

/// The numbers behind the first of these names, `most` of each, in one; nothing when there is none, or when they are
/// no times of compiles.
std::optional<std::chrono::nanoseconds> sum_of(std::string_view bytes, std::initializer_list<std::string_view> names,
                                               size_t most) {
  constexpr uint64_t kLongest = 24ULL * 3600 * 1'000'000'000;  // what says more is not torch's
  uint64_t sum = 0;
  size_t found = 0;
  for (const std::string_view name : names) {
    size_t at = bytes.find(name);
    for (size_t i = 0; i < most && at != std::string_view::npos; ++i, at = bytes.find(name, at)) {
      at += name.size();
      const bool is_memoized = bytes.substr(at).starts_with(kMemoize);
      const auto number = pickled_number(bytes.substr(is_memoized ? at + 1 : at));
      if (!number || *number > kLongest) return std::nullopt;
      sum += *number;
      ++found;
    }
  }
  if (found == 0 || sum > kLongest) return std::nullopt;
  return std::chrono::nanoseconds(static_cast<int64_t>(sum));
}

}  // namespace

std::optional<AskedKey> key_asked_by(std::string_view path) {
  if (is_candidate_directory(path)) {
    std::string key = canonical_path(path);
    const bool is_graph = key.starts_with("fxgraph/");
    return AskedKey{is_graph ? Family::kFxGraph : Family::kAotAutograd, std::move(key)};
  }
  Classification classified = classify(path);
  if (auto asked = asked_by_directory(classified.canonical)) return asked;
  const Family family = classified.family;
  if (!rule_of(family).shared || rule_of(family).is_listed) return std::nullopt;
  if (family == Family::kTritonKernel) {
    if (!is_group_file(path.substr(path.rfind('/') + 1))) return std::nullopt;
    return AskedKey{family, std::move(classified.key_directory)};
  }
  return AskedKey{family, std::move(classified.canonical)};
}

std::optional<std::chrono::nanoseconds> compile_time_of(Family family, std::string_view bytes) {
  if (!rule_of(family).holds_graphs) return std::nullopt;
  if (family == Family::kFxGraph) return sum_of(bytes, {kGraphTime}, 1);
  return sum_of(bytes, {kForwardTime, kBackwardTime}, kMostGraphs);
}

}  // namespace inductorfs::layout
