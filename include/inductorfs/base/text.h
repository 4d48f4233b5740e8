// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace inductorfs {

/// Takes what is before the next `separator`, or all, off the front of `rest`, and the separator too.
[[nodiscard]] inline std::string_view take_part(std::string_view& rest, char separator) {
  const size_t end = std::min(rest.find(separator), rest.size());
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return part;
}

/// What is between separators, empty parts too, but none behind a separator at the end.
[[nodiscard]] inline std::vector<std::string_view> parts_of(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) parts.push_back(take_part(text, separator));
  return parts;
}

/// Without blanks, tabs and carriage returns at both ends.
[[nodiscard]] inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const size_t start = text.find_first_not_of(kBlank);
  if (start == std::string_view::npos) return {};
  return text.substr(start, text.find_last_not_of(kBlank) - start + 1);
}

/// The directory of an absolute path; empty for what lies in the root directory, or for a name without a directory.
[[nodiscard]] inline std::string parent_of(std::string_view path) {
  const size_t slash = path.rfind('/');
  return std::string(path.substr(0, slash == std::string_view::npos ? 0 : slash));
}

/// The directory that has the last name of an absolute path: "/" for what lies in the root directory.
[[nodiscard]] inline std::string directory_of(std::string_view path) {
  return std::string(path.substr(0, std::max<size_t>(path.rfind('/'), 1)));
}

/// The last name of a path; all of a path without a directory.
[[nodiscard]] inline std::string_view base_name_of(std::string_view path) { return path.substr(path.rfind('/') + 1); }

template <typename Texts>
[[nodiscard]] std::string joined(const Texts& texts, std::string_view separator) {
  std::string all;
  for (const auto& text : texts) {
    if (!all.empty()) all += separator;
    all += text;
  }
  return all;
}

/// Returns the length of the character at the front of `text`, if a terminal or a log may be given it; 0 when its first
/// byte has to be escaped: what is not well-formed UTF-8, the control characters of C0 and C1 (a terminal obeys U+009B
/// as it obeys ESC [), and those that have no width and change how the rest of a line is shown: marks and overrides of
/// the direction of writing, zero-width characters, and separators of lines. Text of other users and hosts ends up
/// there.
[[nodiscard]] size_t showable_length(std::string_view text);

/// Returns the name that a person may have meant by `word`: the one that differs in the fewest letters, two at most.
/// Empty when none is so near. Of two that are equally near it is the one with the same first letter: "umount" is
/// "unmount", not "mount". Pure.
[[nodiscard]] std::string nearest_name(std::string_view word, const std::vector<std::string>& names);

}  // namespace inductorfs
