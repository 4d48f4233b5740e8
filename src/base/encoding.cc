// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/encoding.h"

#include <array>

namespace inductorfs {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";
constexpr std::string_view kBase32Digits = "abcdefghijklmnopqrstuvwxyz234567";
constexpr unsigned kBase32Bits = 5;
constexpr unsigned kBase32Mask = 0x1f;

std::optional<unsigned> hex_value(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a') + 10;
  return std::nullopt;
}

/// Eight bytes at a time ("slicing by 8"): what a byte does to the value when so many bytes follow it.
using CrcTables = std::array<std::array<uint32_t, 256>, 8>;

constexpr CrcTables make_crc_tables() {
  constexpr uint32_t kReversedPolynomial = 0xedb88320;
  CrcTables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value & 1U) != 0 ? (value >> 1U) ^ kReversedPolynomial : value >> 1U;
    tables[0][byte] = value;
  }
  for (size_t following = 1; following < tables.size(); ++following) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[following - 1][byte];
      tables[following][byte] = tables[0][before & 0xffU] ^ (before >> 8U);
    }
  }
  return tables;
}
constexpr CrcTables kCrcTables = make_crc_tables();

}  // namespace

uint32_t crc32(std::string_view bytes, uint32_t so_far) {
  uint32_t value = ~so_far;
  for (; bytes.size() >= kCrcTables.size(); bytes.remove_prefix(kCrcTables.size())) {
    uint32_t next = 0;
    for (size_t i = 0; i < kCrcTables.size(); ++i) {
      const uint32_t of_value = i < sizeof(value) ? value >> (8 * i) : 0;
      next ^= kCrcTables[kCrcTables.size() - 1 - i][(of_value ^ static_cast<uint8_t>(bytes[i])) & 0xffU];
    }
    value = next;
  }
  for (const char c : bytes) value = kCrcTables[0][(value ^ static_cast<uint8_t>(c)) & 0xffU] ^ (value >> 8U);
  return ~value;
}

std::string to_hex(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    out.push_back(kHexDigits[byte >> 4]);
    out.push_back(kHexDigits[byte & 0xf]);
  }
  return out;
}

std::optional<std::string> from_hex(std::string_view hex) {
  if (hex.size() % 2 != 0) return std::nullopt;
  std::string out;
  out.reserve(hex.size() / 2);
  for (size_t i = 0; i < hex.size(); i += 2) {
    const auto high = hex_value(hex[i]);
    const auto low = hex_value(hex[i + 1]);
    if (!high || !low) return std::nullopt;
    out.push_back(static_cast<char>(static_cast<uint8_t>(*high << 4 | *low)));
  }
  return out;
}

std::string to_base32(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() * 8 + kBase32Bits - 1) / kBase32Bits);
  unsigned pending = 0;
  unsigned bits = 0;
  for (const char c : bytes) {
    pending = (pending << 8 | static_cast<uint8_t>(c)) & 0xfff;  // at most 4 + 8 bits are alive
    bits += 8;
    while (bits >= kBase32Bits) {
      bits -= kBase32Bits;
      out.push_back(kBase32Digits[(pending >> bits) & kBase32Mask]);
    }
  }
  if (bits > 0) out.push_back(kBase32Digits[(pending << (kBase32Bits - bits)) & kBase32Mask]);
  return out;
}

}  // namespace inductorfs
