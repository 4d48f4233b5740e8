// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// The text of a fact (its value and its details): lines of key=value, of which several may have the same key, or the
/// one word "none". No other file puts such a text together or takes it apart. The functions are pure, and safe for
/// concurrent use; the views that they return point into the text.
namespace inductorfs::fingerprint {

/// The value of a facet whose thing is certainly absent, such as the GPU of a host without one.
inline constexpr std::string_view kNone = "none";
/// The key of the gpu-arch facet's lines, one for each architecture of the host's devices.
inline constexpr std::string_view kArchitectureKey = "cc";

/// Returns the lines of a text, empty ones too.
[[nodiscard]] std::vector<std::string_view> lines_of(std::string_view text);
/// Joins lines, with a line break between two.
[[nodiscard]] std::string joined_lines(const std::vector<std::string_view>& lines);

/// Splits a line at its first "="; empty if it has none.
[[nodiscard]] std::optional<std::pair<std::string_view, std::string_view>> split_line(std::string_view line);
/// Returns the values of a key, in the order of the lines.
[[nodiscard]] std::vector<std::string> values_of(std::string_view text, std::string_view key);
/// Returns the first value of a key.
[[nodiscard]] std::optional<std::string> value_of(std::string_view text, std::string_view key);
/// Returns the words of a value that is a list, such as the flags of a CPU.
[[nodiscard]] std::vector<std::string_view> words_of(std::string_view value);

using Lines = std::vector<std::pair<std::string, std::string>>;
/// Returns the canonical text of these keys and values: sorted, without duplicates, no newline at the end.
[[nodiscard]] std::string canonical(const Lines& lines);
/// Adds the line key=value to the end of a text. A line break in it becomes a space, because a value is one line.
void add_line(std::string& text, std::string_view key, std::string_view value);

}  // namespace inductorfs::fingerprint
