// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/fingerprint/facet_text.h"

#include <algorithm>

#include "inductorfs/base/text.h"

namespace inductorfs::fingerprint {

std::vector<std::string_view> lines_of(std::string_view text) { return parts_of(text, '\n'); }

std::string joined_lines(const std::vector<std::string_view>& lines) {
  std::string text;
  for (const std::string_view line : lines) text.append(text.empty() ? "" : "\n").append(line);
  return text;
}

std::optional<std::pair<std::string_view, std::string_view>> split_line(std::string_view line) {
  const size_t equals = line.find('=');
  if (equals == std::string_view::npos) return std::nullopt;
  return std::pair(line.substr(0, equals), line.substr(equals + 1));
}

std::vector<std::string> values_of(std::string_view text, std::string_view key) {
  std::vector<std::string> values;
  for (const std::string_view line : lines_of(text)) {
    const auto parts = split_line(line);
    if (parts && parts->first == key) values.emplace_back(parts->second);
  }
  return values;
}

std::optional<std::string> value_of(std::string_view text, std::string_view key) {
  auto values = values_of(text, key);
  if (values.empty()) return std::nullopt;
  return std::move(values.front());
}

std::vector<std::string_view> words_of(std::string_view value) {
  std::vector<std::string_view> words = parts_of(value, ' ');
  std::erase(words, std::string_view());
  return words;
}

std::string canonical(const Lines& lines) {
  std::vector<std::string> texts;
  texts.reserve(lines.size());
  for (const auto& [key, value] : lines) add_line(texts.emplace_back(), key, value);
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return joined_lines({texts.begin(), texts.end()});
}

void add_line(std::string& text, std::string_view key, std::string_view value) {
  if (!text.empty()) text += '\n';
  const size_t start = text.size();
  text.append(key).append("=").append(value);
  std::replace(text.begin() + static_cast<ptrdiff_t>(start), text.end(), '\n', ' ');
}

}  // namespace inductorfs::fingerprint
