// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <optional>

#include "content_checks.h"
#include "inductorfs/base/encoding.h"
#include "name_shapes.h"

namespace inductorfs::layout {
namespace {

/// torch/utils/_appending_byte_serializer.py: BytesReader. Its numbers are big-endian.
class PieceReader {
 public:
  explicit PieceReader(std::string_view bytes) : rest_(bytes) {}

  [[nodiscard]] bool has_right_checksum() {
    const auto expected = number(sizeof(uint32_t));
    return expected && crc32(rest_) == *expected;
  }
  /// Returns the next piece; nothing when it is not all there.
  std::optional<std::string_view> piece() {
    const auto length = number(sizeof(uint64_t));
    return length ? take(*length) : std::nullopt;
  }
  [[nodiscard]] bool is_finished() const { return rest_.empty(); }

 private:
  std::optional<std::string_view> take(uint64_t size) {
    if (size > rest_.size()) return std::nullopt;
    const std::string_view found = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return found;
  }
  std::optional<uint64_t> number(size_t size) {
    const auto bytes = take(size);
    if (!bytes) return std::nullopt;
    uint64_t value = 0;
    for (const char c : *bytes) value = (value << 8U) | static_cast<uint8_t>(c);
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

}  // namespace inductorfs::layout
