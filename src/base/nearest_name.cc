// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/nearest_name.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace inductorfs {
namespace {

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
