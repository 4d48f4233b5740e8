// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace inductorfs::vfs {

/// The whole of `text` as a number, as the names of what an earlier worker has left hold it; empty when it is none.
template <typename T>
[[nodiscard]] std::optional<T> number_in(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace inductorfs::vfs
