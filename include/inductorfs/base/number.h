// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

namespace inductorfs {

/// Reads the whole of `text` as a number. False if it is none, or is too large; `out` is unspecified then.
template <typename Number>
[[nodiscard]] bool parse_number(std::string_view text, Number& out, int base = 10) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out, base);
  return error == std::errc() && end == text.data() + text.size();
}

/// The whole of `text` as a number; empty if it is none, or is too large.
template <typename Number>
[[nodiscard]] std::optional<Number> number_in(std::string_view text) {
  Number value{};
  return parse_number(text, value) ? std::optional(value) : std::nullopt;
}

/// The number with which `text` begins; 0 if it begins with none.
template <typename Number>
[[nodiscard]] Number leading_number(std::string_view text) {
  Number value{};
  (void)std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// Major and minor number: (2, 15) for "2.15.0+cu132", (13, 0) for "13". What does not parse is 0.
[[nodiscard]] inline std::pair<int, int> version_in(std::string_view text) {
  std::pair<int, int> version;
  const char* const end = text.data() + text.size();
  const auto major = std::from_chars(text.data(), end, version.first);
  if (major.ptr < end) (void)std::from_chars(major.ptr + 1, end, version.second);
  return version;
}

}  // namespace inductorfs
