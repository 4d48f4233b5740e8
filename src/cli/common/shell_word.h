// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace inductorfs::cli {

/// Returns a text as one word for a POSIX shell, in quotes where it needs them: whoever chose a path chose what its
/// name says, and a user pastes what a remedy says.
[[nodiscard]] inline std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:@+,";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

}  // namespace inductorfs::cli
