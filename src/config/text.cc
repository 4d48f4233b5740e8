// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/config/text.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "inductorfs/base/text.h"
#include "inductorfs/config/json.h"
#include "inductorfs/config/paths.h"

namespace inductorfs::config {

// Here alone, because each source that writes or reads JSON by itself takes a second longer to compile.
std::string to_line(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }
std::string to_pretty(const Json& value) { return value.dump(2, ' ', false, Json::error_handler_t::replace); }
Json from_text(std::string_view text) { return Json::parse(text, nullptr, false); }

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
    const std::string_view line = take_part(value, '\n');
    if (!line.empty()) text.append(margin).append(printable(line)).append("\n");
  }
  return text;
}

std::string suggestion(std::string_view word, const std::vector<std::string>& names) {
  const std::string nearest = nearest_name(word, names);
  return nearest.empty() ? nearest : "; did you mean " + nearest + "?";
}

std::string utc(std::time_t time) {
  std::tm parts{};
  std::array<char, 32> text{};
  if (time == 0 || ::gmtime_r(&time, &parts) == nullptr) return {};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
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
