// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

/// The shapes of the names that torch and Triton make. They are tested by hand-written code, because classify() runs on
/// every create, rename and lookup, and std::regex costs microseconds and allocates. The functions are pure;
/// safe for concurrent use.
namespace inductorfs::layout {

/// Sets of characters, as bits of one table.
enum CharacterSet : uint8_t {
  kDigit = 1,        ///< 0-9
  kHex = 2,          ///< 0-9a-f
  kBase32Lower = 4,  ///< a-z2-7, torch (codecache.py: sha256_hash)
  kBase32Upper = 8,  ///< A-Z2-7, Triton >= 3.3 (runtime/cache.py: _base32)
  kBase64Url = 16,   ///< A-Za-z0-9_-, Triton 3.2 (_base64)
  kTempfile = 32,    ///< a-z0-9_, Python's tempfile (_RandomNameSequence.characters)
};

namespace detail {
constexpr std::array<uint8_t, 256> make_character_table() {
  std::array<uint8_t, 256> table{};
  for (size_t c = 0; c < table.size(); ++c) {
    const bool digit = c >= '0' && c <= '9';
    const bool lower = c >= 'a' && c <= 'z';
    const bool upper = c >= 'A' && c <= 'Z';
    const bool base32_digit = c >= '2' && c <= '7';
    unsigned sets = 0;
    if (digit) sets |= kDigit;
    if (digit || (c >= 'a' && c <= 'f')) sets |= kHex;
    if (lower || base32_digit) sets |= kBase32Lower;
    if (upper || base32_digit) sets |= kBase32Upper;
    if (lower || upper || digit || c == '_' || c == '-') sets |= kBase64Url;
    if (lower || digit || c == '_') sets |= kTempfile;
    table[c] = static_cast<uint8_t>(sets);
  }
  return table;
}
inline constexpr std::array<uint8_t, 256> kCharacterTable = make_character_table();
}  // namespace detail

constexpr bool is_in(char c, CharacterSet set) { return (detail::kCharacterTable[static_cast<uint8_t>(c)] & set) != 0; }

/// Says whether all characters are in the set, and there is at least one.
constexpr bool consists_of(std::string_view text, CharacterSet set) {
  if (text.empty()) return false;
  for (const char c : text) {
    if (!is_in(c, set)) return false;
  }
  return true;
}

constexpr bool is_text_of(std::string_view text, size_t length, CharacterSet set) {
  return text.size() == length && consists_of(text, set);
}

inline constexpr size_t kTorchHashLength = 51;
inline constexpr size_t kTorchNameLength = kTorchHashLength + 1;
inline constexpr size_t kSha256HexLength = 64;

/// Recognises 51 characters of base32: the hash of an fxgraph or aotautograd entry's content.
constexpr bool is_torch_hash(std::string_view text) { return is_text_of(text, kTorchHashLength, kBase32Lower); }
/// Recognises one letter and a hash: c is code, f an FX graph key, a an AOTAutograd key.
constexpr bool is_torch_name(std::string_view text, char letter) {
  return text.size() == kTorchNameLength && text.front() == letter && is_torch_hash(text.substr(1));
}
/// Returns the directory into which torch puts a name: the name's characters 1 and 2 (codecache.py: get_path).
constexpr std::string_view torch_directory(std::string_view name) { return name.substr(1, 2); }
constexpr bool is_torch_directory(std::string_view text) { return is_text_of(text, 2, kBase32Lower); }

/// Recognises a Triton key of any generation (triton/runtime/cache.py: _base32, _base64; before 3.2 the hex digest
/// itself).
constexpr bool is_triton_key(std::string_view text) {
  switch (text.size()) {
    case 43:
      return consists_of(text, kBase64Url);
    case 52:
      return consists_of(text, kBase32Upper);
    case kSha256HexLength:
      return consists_of(text, kHex);
    default:
      return false;
  }
}

/// Recognises str(uuid.uuid4()).
constexpr bool is_uuid(std::string_view text) {
  constexpr std::string_view kForm = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
  if (text.size() != kForm.size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (kForm[i] == 'x' ? !is_in(text[i], kHex) : text[i] != '-') return false;
  }
  return true;
}

/// Recognises "tmp" and 8 characters: names of tempfile.mkdtemp and NamedTemporaryFile without a prefix. A user's name
/// may have this form, too (hidden_root()).
constexpr bool is_tempfile_name(std::string_view text) {
  return text.size() == 11 && text.starts_with("tmp") && consists_of(text.substr(3), kTempfile);
}

}  // namespace inductorfs::layout
