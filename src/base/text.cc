// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/text.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <utility>

namespace inductorfs {
namespace {

struct Character {
  uint32_t code = 0;
  size_t length = 0;  ///< 0: no UTF-8
};

Character character_at(std::string_view text) {
  const auto byte = [&](size_t at) -> uint32_t { return static_cast<unsigned char>(text[at]); };
  if (text.empty()) return {};
  const uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  const size_t length = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  if (length == 0 || length > text.size()) return {};
  uint32_t code = first & (0x7fU >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3fU);
  }
  // Three and four bytes for what has a shorter form, halves of pairs, and what lies beyond Unicode.
  const bool is_long = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  return is_long || (code >= 0xd800 && code <= 0xdfff) || code > 0x10ffff ? Character{} : Character{code, length};
}

/// Of the categories Cc, Cf, Zl and Zp of Unicode those that are not visible; tags included.
constexpr std::array<std::pair<uint32_t, uint32_t>, 11> kUnseen{{{0x00, 0x1f},
                                                                 {0x7f, 0x9f},
                                                                 {0xad, 0xad},
                                                                 {0x61c, 0x61c},
                                                                 {0x180e, 0x180e},
                                                                 {0x200b, 0x200f},
                                                                 {0x2028, 0x202e},
                                                                 {0x2060, 0x206f},
                                                                 {0xfeff, 0xfeff},
                                                                 {0xfff9, 0xfffb},
                                                                 {0xe0000, 0xe007f}}};

/// No name of ours is longer; a word may have any length, and the time grows with both.
constexpr size_t kLongest = 128;

/// The least number of letters that must be put in, taken out or replaced to make `b` of `a`.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t corner = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = corner + (a[i] == b[j] ? 0 : 1);
      corner = std::exchange(row[j + 1], std::min({row[j] + 1, row[j + 1] + 1, replaced}));
    }
  }
  return row.back();
}

}  // namespace

size_t showable_length(std::string_view text) {
  const Character character = character_at(text);
  const bool is_unseen = std::ranges::any_of(
      kUnseen, [&](const auto& range) { return character.code >= range.first && character.code <= range.second; });
  return is_unseen ? 0 : character.length;
}

std::string nearest_name(std::string_view word, const std::vector<std::string>& names) {
  constexpr size_t kNear = 2;
  if (word.size() > kLongest) return {};
  const auto far = [&](const std::string& name) {
    return std::pair(distance(word, name), name.substr(0, 1) != word.substr(0, 1));
  };
  const auto nearest =
      std::min_element(names.begin(), names.end(), [&](const auto& a, const auto& b) { return far(a) < far(b); });
  return nearest == names.end() || far(*nearest).first > kNear ? std::string() : *nearest;
}

}  // namespace inductorfs
