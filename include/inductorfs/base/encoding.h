// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Bytes as text and integers as bytes. All integers are little-endian.
namespace inductorfs {

template <std::unsigned_integral T>
void append_integer(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    out.push_back(static_cast<char>(static_cast<uint8_t>(value >> (8 * i))));
  }
}

/// Reads a byte string from front to back and never past its end. A read of more bytes than are left answers zeros (or
/// an empty view), and the reader is failed from then on, so a caller parses a whole value and then asks once. The
/// bytes must outlive the reader. Needs external synchronisation.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  template <std::unsigned_integral T>
  [[nodiscard]] T integer() {
    const std::string_view raw = bytes(sizeof(T));
    T value = 0;
    for (size_t i = 0; i < raw.size(); ++i) {
      value = static_cast<T>(value | (static_cast<T>(static_cast<uint8_t>(raw[i])) << (8 * i)));
    }
    return value;
  }
  [[nodiscard]] std::string_view bytes(size_t size) {
    if (failed_ || size > rest_.size()) {
      failed_ = true;
      return {};
    }
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] size_t left() const { return failed_ ? 0 : rest_.size(); }
  /// Says whether every read succeeded and nothing is left over.
  [[nodiscard]] bool complete() const { return !failed_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool failed_ = false;
};

/// Computes the CRC-32 of IEEE 802.3, continued from `so_far`. Up to 11 KiB it detects any damage of up to three bits,
/// and at any length any burst of 32 bits: it is for accidents. Data that must hold against an attacker has a digest
/// (codec/digest.h).
[[nodiscard]] uint32_t crc32(std::string_view bytes, uint32_t so_far = 0);

/// Writes lower-case hexadecimal digits.
[[nodiscard]] std::string to_hex(std::string_view bytes);
/// Reads lower-case digits only, so that a name has one spelling. Empty when `hex` is not an even number of them.
[[nodiscard]] std::optional<std::string> from_hex(std::string_view hex);
/// Writes RFC 4648 base32 in lower case (a-z2-7), without padding.
[[nodiscard]] std::string to_base32(std::string_view bytes);

}  // namespace inductorfs
