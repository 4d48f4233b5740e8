// SPDX-License-Identifier: Apache-2.0
#include "compiled_artifact.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "inductorfs/base/encoding.h"
#include "name_shapes.h"
#include "pickle_frame.h"

namespace inductorfs::layout {
namespace {

/// torch/utils/_appending_byte_serializer.py: BytesReader. Its numbers are big-endian.
class PieceReader {
 public:
  explicit PieceReader(std::string_view bytes) : rest_(bytes) {}

  [[nodiscard]] bool has_right_checksum() {
    constexpr size_t kChecksumSize = 4;
    if (rest_.size() < kChecksumSize) return false;
    const uint64_t expected = number(rest_.substr(0, kChecksumSize));
    rest_.remove_prefix(kChecksumSize);
    return crc32(rest_) == expected;
  }
  /// Returns the next piece; nothing when it is not all there.
  std::optional<std::string_view> piece() {
    constexpr size_t kLengthSize = 8;
    if (rest_.size() < kLengthSize) return std::nullopt;
    const uint64_t length = number(rest_.substr(0, kLengthSize));
    if (length > rest_.size() - kLengthSize) return std::nullopt;
    const std::string_view found = rest_.substr(kLengthSize, length);
    rest_.remove_prefix(kLengthSize + length);
    return found;
  }
  [[nodiscard]] bool is_finished() const { return rest_.empty(); }

 private:
  static uint64_t number(std::string_view bytes) {
    uint64_t value = 0;
    for (const char c : bytes) value = (value << 8U) | static_cast<uint8_t>(c);
    return value;
  }
  std::string_view rest_;
};

constexpr std::string_view kCacheHeader = "CacheCompiledArtifact";
constexpr std::string_view kAotHeader = "AOTCompiledArtifact";
constexpr size_t kTorchKeySize = 32;

bool is_base64(std::string_view text) {
  while (text.ends_with('=')) text.remove_suffix(1);
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return c == '+' || c == '/' || (is_in(c, kBase64Url) && c != '-' && c != '_');
  });
}

/// rank_<r>_<dp>, the component of a path.
struct Rank {
  uint64_t rank = 0;
  bool is_alone = false;  ///< no data parallel rank, and no device in the name
};

std::optional<uint64_t> take_number(std::string_view& text) {
  constexpr size_t kMostDigits = 9;
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (digits == 0 || digits > kMostDigits) return std::nullopt;
  uint64_t value = 0;
  for (const char c : text.substr(0, digits)) value = value * 10 + static_cast<uint64_t>(c - '0');
  text.remove_prefix(digits);
  return value;
}

std::optional<Rank> rank_in(std::string_view canonical) {
  constexpr std::string_view kRank = "/rank_";
  const size_t at = canonical.find(kRank);
  if (at == std::string_view::npos) return std::nullopt;
  canonical.remove_prefix(at + kRank.size());
  const auto rank = take_number(canonical);
  if (!rank || !canonical.starts_with('_')) return std::nullopt;
  canonical.remove_prefix(1);
  const auto parallel = take_number(canonical);
  if (!parallel) return std::nullopt;
  return Rank{*rank, *parallel == 0 && canonical.starts_with('/')};
}

/// The highest device index in generated code; nothing when there is none.
std::optional<uint64_t> highest_device(std::string_view bytes) {
  constexpr std::string_view kCall = "get_raw_stream(";
  std::optional<uint64_t> highest;
  for (size_t at = bytes.find(kCall); at != std::string_view::npos; at = bytes.find(kCall)) {
    bytes.remove_prefix(at + kCall.size());
    if (const auto index = take_number(bytes); index && bytes.starts_with(')')) {
      highest = std::max(highest.value_or(0), *index);
    }
  }
  return highest;
}

}  // namespace

Result<void> check_compiled_artifact(const Artefact& artefact) {
  PieceReader reader(artefact.bytes);
  if (!reader.has_right_checksum()) return corrupt(artefact, "its checksum is not that of its bytes");
  auto first = reader.piece();
  // torch 2.8 and 2.9 write no header.
  const bool has_header = first == kCacheHeader || first == kAotHeader;
  const bool is_aot = first == kAotHeader;
  const auto torch_key = has_header ? reader.piece() : first;
  if (!torch_key || torch_key->size() != kTorchKeySize) return corrupt(artefact, "has no key of torch");
  if (!is_aot) {
    const auto key = reader.piece();
    if (!key || !is_base64(*key)) return corrupt(artefact, "has no key of its graph");
  }
  const auto content = reader.piece();
  if (!content || content->empty() || !reader.is_finished())
    return corrupt(artefact, "is cut off, or longer than it says");
  return {};
}

Result<void> check_devices(std::string_view canonical, const Artefact& artefact) {
  const auto rank = rank_in(canonical);
  if (!rank || !rank->is_alone) return {};
  const auto device = highest_device(artefact.bytes);
  if (!device || *device <= rank->rank) return {};
  return foreign(artefact, "is of device " + std::to_string(*device) + ", and processes of rank " +
                               std::to_string(rank->rank) +
                               " have a lower one elsewhere: let each engine see its own devices only "
                               "(CUDA_VISIBLE_DEVICES)");
}

}  // namespace inductorfs::layout
