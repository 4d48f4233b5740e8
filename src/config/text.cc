// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/config/text.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "inductorfs/config/paths.h"

namespace inductorfs::config {

std::string text_at(const Json& object, const char* name) {
  const auto at = object.find(name);
  return at != object.end() && at->is_string() ? printable(at->get<std::string>()) : std::string();
}

std::string lines_at(const Json& object, const char* name) {
  const auto at = object.find(name);
  return at != object.end() && at->is_string() ? at->get<std::string>() : std::string();
}

uint64_t number_at(const Json& object, const char* name) {
  const auto at = object.find(name);
  if (at == object.end() || !at->is_number_integer()) return 0;
  // What a program puts into a Json from a signed variable is a signed number there, until it is parsed again.
  if (!at->is_number_unsigned() && at->get<int64_t>() < 0) return 0;
  return at->get<uint64_t>();
}

bool flag_at(const Json& object, const char* name) {
  const auto at = object.find(name);
  return at != object.end() && at->is_boolean() && at->get<bool>();
}

const Json& part_of(const Json& object, const char* name) {
  static const Json kNothing = Json::object();
  const auto at = object.find(name);
  return at != object.end() ? *at : kNothing;
}

std::string line(std::string_view label, const std::string& value) {
  constexpr size_t kWidth = 14;
  std::string text(label);
  text.resize(std::max(kWidth, text.size() + 1), ' ');
  return text + value + "\n";
}

std::string list_text(std::string_view label, const Json& list, const std::function<std::string(const Json&)>& show) {
  std::string text;
  if (!list.is_array()) return text;
  for (const Json& item : list) {
    text += line(text.empty() ? label : std::string_view(), show(item));
  }
  return text;
}

std::string plain_item(const Json& item) { return item.is_string() ? printable(item.get<std::string>()) : ""; }

std::string indented(std::string_view value, std::string_view margin) {
  std::string text;
  while (!value.empty()) {
    const size_t end = std::min(value.find('\n'), value.size());
    if (end > 0) text.append(margin).append(printable(value.substr(0, end))).append("\n");
    value.remove_prefix(std::min(end + 1, value.size()));
  }
  return text;
}

namespace {

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

std::string suggestion(std::string_view word, const std::vector<std::string>& names) {
  constexpr size_t kNear = 2;
  const auto far = [&](const std::string& name) {
    return std::pair(distance(word, name), name.substr(0, 1) != word.substr(0, 1));
  };
  const auto nearest =
      std::min_element(names.begin(), names.end(), [&](const auto& a, const auto& b) { return far(a) < far(b); });
  if (nearest == names.end() || far(*nearest).first > kNear) return {};
  return "; did you mean " + *nearest + "?";
}

std::string human_bytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  uint64_t tenths = bytes * 10;
  if (bytes > UINT64_MAX / 10) tenths = UINT64_MAX;
  while (tenths >= 10240 && unit + 1 < std::size(kUnits)) {
    tenths /= 1024;
    ++unit;
  }
  std::string text = std::to_string(tenths / 10);
  if (unit > 0) text += "." + std::to_string(tenths % 10);
  return text + " " + kUnits[unit];
}

std::string human_seconds(uint64_t seconds) {
  constexpr uint64_t kMinute = 60;
  constexpr uint64_t kHour = 60 * kMinute;
  constexpr uint64_t kDay = 24 * kHour;
  if (seconds < 2 * kMinute) return std::to_string(seconds) + " s";
  if (seconds < 2 * kHour) return std::to_string(seconds / kMinute) + " min";
  if (seconds < 2 * kDay) return std::to_string(seconds / kHour) + " h";
  return std::to_string(seconds / kDay) + " d";
}

}  // namespace inductorfs::config
